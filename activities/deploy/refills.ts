import { ApplicationFailure } from '@temporalio/activity'
import { newId } from '../../lib/ids.ts'
import { transaction } from '../../models/database.ts'
import { BackupExecution, findBackupExecution } from '../../models/deploy/backup-executions.ts'
import {
  Database,
  type DatabaseDocument,
  findDatabase,
  type ReturnsTo,
} from '../../models/deploy/databases.ts'
import { deployServerResource } from '../../models/deploy/deploy-servers.ts'
import { placeTogether } from '../../models/deploy/places.ts'
import { beginAnew } from '../../models/deploy/point-in-time.ts'
import { dataStorageOf, replaceDataStorage } from '../../models/deploy/storages.ts'
import { lockParent } from '../../models/parents.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { permanently } from '../failures.ts'

/** How a volume is filled. */
interface Filling {
  operation_id: string
  isNew?: boolean
  to?: { version: string; image: string }
  at?: string | undefined
}

/** The activities with which another volume takes the place of a database's data. */
export const makeRefillActivities = () => ({
  /**
   * Names the volume that is filled, and takes room for the engine that fills it. `isNew`: the database has no data yet.
   * `at`: the moment to which it is brought. Idempotent within an operation.
   * Throws `no_room`, `worker_away` and `not_found`.
   */
  async beginRefill(
    id: string,
    execution_id: string,
    { operation_id, isNew = false, to, at }: Filling,
  ): Promise<void> {
    await permanently(() =>
      transaction(async () => {
        const { tenant_id, deploy_server_id, refill, ...database } = await theDatabase(id)
        // One that another operation left may name a volume that the database mounts by now.
        if (refill?.operation_id === operation_id) return
        const execution = await findBackupExecution(execution_id)
        if (!execution?.copy || execution.tenant_id !== tenant_id)
          throw ApplicationFailure.nonRetryable('The backup no longer exists', 'not_found')
        const { runs, volume_node: node, version, image, memory_mib } = database
        const server = await lockParent(deployServerResource, tenant_id, deploy_server_id)
        // One that does not run leaves its own room to the engine that fills the volume.
        await placeTogether(server, { next: 0 }, { itself: runs ? '' : id, node, memory_mib, ports: 0 })
        const storage_id = isNew ? (await dataStorageOf({ _id: id, tenant_id }))._id : newId()
        const before = { version, image }
        const next = {
          operation_id,
          execution_id,
          storage_id,
          ...before,
          ...to,
          before,
          memory_mib,
          at: at ? new Date(at) : null,
        }
        // The copy of another database may have the users of its attachments.
        const users = execution.database_id === id ? {} : { has_users: true }
        await Database.updateOne({ _id: id, tenant_id }, { $set: { refill: next, ...users } })
      }, id),
    )
  },

  /**
   * Names a former volume, to which the database goes back with its version and this image. Idempotent within an operation.
   * Throws `not_found`.
   */
  async beginReturn(
    id: string,
    { volume_id: storage_id, image }: ReturnsTo,
    operation_id: string,
  ): Promise<void> {
    const { tenant_id, refill, former_volumes, ...database } = await theDatabase(id)
    if (refill?.operation_id === operation_id) return
    const returns = former_volumes.find((one) => one.storage_id === storage_id)
    const before = { version: database.version, image: database.image }
    const its = { operation_id, storage_id, version: returns?.version, image, returns }
    const next = { ...its, execution_id: null, before, memory_mib: 0 }
    const there = { _id: id, tenant_id, 'former_volumes.storage_id': storage_id }
    const { matchedCount } = await Database.updateOne(there, { $set: { refill: next } })
    if (matchedCount === 0)
      throw ApplicationFailure.nonRetryable('The former volume no longer exists', 'not_found')
  },

  /** Has it run with what it ran with before, but without a port. Idempotent within an operation. */
  async settleIsolated(id: string, { applied }: Pick<DatabaseDocument, 'applied'>): Promise<void> {
    if (!applied) return
    const starts = applied.starts + 1
    const isolated = { runs: true, isolated: true, applied: { ...applied, starts } }
    await Database.updateOne({ _id: id }, { $set: isolated }).setOptions(everyTenant)
  },

  /** Has the platform read a backup back, which says and tells that it is damaged. */
  async lookAtBackup(execution_id: string): Promise<void> {
    const now = { look_at: new Date() }
    await BackupExecution.updateOne({ _id: execution_id }, { $set: now }).setOptions(everyTenant)
  },

  /** Has the volume that was filled stay as a former one, if the database goes back. */
  async keepRefill(id: string): Promise<void> {
    const filled = { _id: id, refill: { $ne: null } }
    await Database.updateOne(filled, { $set: { 'refill.stays': true } }).setOptions(everyTenant)
  },

  async endRefill(id: string): Promise<void> {
    await Database.updateOne({ _id: id }, { $set: { refill: null } }).setOptions(everyTenant)
  },

  /** Has the database mount the volume that is to have its data. The present one is kept. Idempotent. */
  switchVolumes: (id: string): Promise<void> =>
    transaction(async () => {
      const database = await theDatabase(id)
      const { tenant_id, refill, applied, version } = database
      const storage = await dataStorageOf({ _id: id, tenant_id })
      if (!refill || storage._id === refill.storage_id) return
      await replaceDataStorage(storage, refill.storage_id)
      const former = {
        storage_id: storage._id,
        version: applied?.version ?? version,
        kept_at: new Date(),
      }
      const now = { version: refill.version, image: refill.image, 'refill.former_id': storage._id }
      const others = { former_volumes: { storage_id: refill.storage_id } }
      await Database.updateOne({ _id: id, tenant_id }, { $pull: others })
      await Database.updateOne({ _id: id, tenant_id }, { $set: now, $push: { former_volumes: former } })
      await beginAnew(database)
    }, id),

  /** Has it mount again what it mounted before the operation's switch, if there was one. Idempotent. */
  takeVolumesBack: (id: string, operation_id: string): Promise<void> =>
    transaction(async () => {
      const database = await theDatabase(id)
      const { tenant_id, refill } = database
      if ((refill?.operation_id ?? operation_id) !== operation_id) return
      const storage = await dataStorageOf({ _id: id, tenant_id })
      // Also if the tenant has deleted it from the former volumes meanwhile: only the next start destroys it.
      const storage_id = refill?.former_id
      if (!storage_id || storage._id !== refill.storage_id) return
      await replaceDataStorage(storage, storage_id)
      await Database.updateOne(
        { _id: id, tenant_id },
        { $set: refill.before, $pull: { former_volumes: { storage_id } } },
      )
      const stays = { storage_id: refill.storage_id, version: refill.version, kept_at: new Date() }
      const returns = refill.returns ?? (refill.stays && stays)
      if (returns) await Database.updateOne({ _id: id, tenant_id }, { $push: { former_volumes: returns } })
      await beginAnew(database)
    }, id),
})

async function theDatabase(id: string): Promise<DatabaseDocument> {
  const database = await findDatabase(id)
  if (!database) throw ApplicationFailure.nonRetryable('The database no longer exists', 'not_found')
  return database
}
