import { Problem } from '../../lib/problem.ts'
import { Operation } from '../operations.ts'
import { BackupExecution, type BackupExecutionDocument } from './backup-executions.ts'
import { Database, isFilling } from './databases.ts'

// Databases that are being filled from a backup, or will be when they start.

type Of = Pick<BackupExecutionDocument, '_id' | 'tenant_id'>

/** The names of the databases that take their data from these backups, by the backup's id. */
export async function usesOf(tenant_id: string, ids: string[]): Promise<Map<string, string>> {
  const among = { $in: ids }
  // An operation that was accepted names its backup before the database does.
  const accepted = await Operation.find(
    { tenant_id, resource_kind: 'database', open: true, 'input.execution_id': among },
    { resource_name: 1, input: 1 },
  ).lean()
  const filled = await Database.find(
    { tenant_id, $or: [{ 'refill.execution_id': among }, { 'begins_with.execution_id': among }] },
    { name: 1, operation_id: 1, refill: 1, begins_with: 1 },
  ).lean()
  const uses = new Map(
    accepted.map(({ resource_name, input }) => [String(input['execution_id']), resource_name]),
  )
  for (const database of filled) {
    const { name, refill, begins_with } = database
    const takes = isFilling(database) ? refill?.execution_id : null
    for (const id of [takes, begins_with?.execution_id]) if (id) uses.set(id, name)
  }
  return uses
}

/** Throws `backup_in_use`, in the caller's transaction. */
export async function needUnused({ _id, tenant_id }: Of): Promise<void> {
  const name = (await usesOf(tenant_id, [_id])).get(_id)
  if (name === undefined) return
  const detail = `The database ${name} takes its data from it: wait until it has, or delete the database`
  throw new Problem(409, 'backup_in_use', 'The backup is in use', detail)
}

/** Has a database use a backup, in the caller's transaction: of this and a deletion at once, the second sees the first. */
export async function useBackup({ _id, tenant_id }: Of): Promise<void> {
  await BackupExecution.updateOne({ _id, tenant_id }, { $set: { updated_at: new Date() } })
}
