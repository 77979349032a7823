import type { TestTenant } from './tenants.ts'

/** Path parameters by the collection that a path begins with: `containers` → `{ id }`. */
export type Belongings = Record<string, Record<string, string>>

/** Makes one thing of each kind for a tenant, for tests that walk all operations. A new kind is added here. */
export async function makeOneOfEach(tenant: TestTenant): Promise<Belongings> {
  const container = await tenant.containers.create({ start: false })
  await container.operation.success()
  return {
    containers: { id: container.id },
    operations: { id: container.operation.id },
  }
}

/** `/api/v1/containers/{id}/start` → `containers` */
export const collectionOf = (path: string): string => /^\/api\/v1\/([^{]+?)\/?(\{|$)/.exec(path)?.[1] ?? path
