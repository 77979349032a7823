import type { InstanceDocument } from './instances.ts'

// Config vars of instances that another resource manages. They are not in the instance's record: its manager has them.

type Managed = Pick<InstanceDocument, '_id' | 'tenant_id' | 'nics'> & { managed_by: string }
type Give = (instance: Managed) => Promise<Record<string, string>>

const givers: Give[] = []

/** Declares a kind of manager: `give` returns nothing for instances of others. */
export const givesVars = (give: Give): void => void givers.push(give)

/** What an instance's manager gives it. */
export async function varsOfManager(
  instance: Pick<InstanceDocument, '_id' | 'tenant_id' | 'managed_by' | 'nics'>,
): Promise<Record<string, string>> {
  const { managed_by } = instance
  if (managed_by === null) return {}
  return Object.assign({}, ...(await Promise.all(givers.map((give) => give({ ...instance, managed_by })))))
}
