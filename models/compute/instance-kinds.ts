import type { InstanceKindName } from '../../lib/host-protocol.ts'
import { everyTenant } from '../tenant-scope.ts'
import { containerKind } from './containers.ts'
import type { InstanceDocument, InstanceKind } from './instances.ts'
import { microvmKind } from './microvms.ts'
import { vmKind } from './vms.ts'

/** Every kind of instance. Code for all kinds goes through this table. */
export const instanceKinds: Record<InstanceKindName, InstanceKind> = {
  container: containerKind,
  microvm: microvmKind,
  vm: vmKind,
}

export const allKinds: InstanceKind[] = Object.values(instanceKinds)

/** An instance and its kind. */
export interface Instance {
  kind: InstanceKind
  instance: InstanceDocument
}

/** Finds instances of any kind and tenant. */
export async function findInstances(filter: object): Promise<Instance[]> {
  const found = await Promise.all(
    allKinds.map(async (kind) => {
      const instances = await kind.model.find(filter).setOptions(everyTenant).lean()
      return instances.map((instance) => ({ kind, instance }))
    }),
  )
  return found.flat()
}

/** Finds an instance of any kind and tenant. */
export async function findInstance(id: string): Promise<Instance | null> {
  // In sequence: most instances are of the first kind and cost one query.
  for (const kind of allKinds) {
    const instance = await kind.model.findById(id).setOptions(everyTenant).lean()
    if (instance) return { kind, instance }
  }
  return null
}
