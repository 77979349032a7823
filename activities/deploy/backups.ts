import { ApplicationFailure } from '@temporalio/activity'
import type { Verified } from '../../lib/backup-protocol.ts'
import { transaction } from '../../models/database.ts'
import { noteDamagedSegments } from '../../models/deploy/archive-orders.ts'
import { noteUntidy } from '../../models/deploy/archives.ts'
import {
  BackupExecution,
  type BackupExecutionDocument,
  findBackupExecution,
} from '../../models/deploy/backup-executions.ts'
import { dropParts } from '../../models/deploy/backup-parts.ts'
import { tidySoon } from '../../models/deploy/backups.ts'
import { findDatabase } from '../../models/deploy/databases.ts'
import { DeployServer, deployServerResource } from '../../models/deploy/deploy-servers.ts'
import { hostsOfMachines } from '../../models/deploy/machine-places.ts'
import { NoRoom, placeTogether } from '../../models/deploy/places.ts'
import { lockParent } from '../../models/parents.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { placeOfVolumes, type PlaceOfVolumes } from './volumes.ts'

/** Where a dump is written. */
export interface DumpPlace extends PlaceOfVolumes {
  deploy_server_id: string
  service_id: string
}

/** Where a copy is read back. */
export interface ReadingPlace extends PlaceOfVolumes {
  deploy_server_id: string
  /** That of a scratch engine which has room there. Null: the copy is only read. */
  image: string | null
}

/** A backup is read back again after this time. */
const verifiedForMs = 7 * 86_400_000

/** Activities of backups: short reads and writes of MongoDB. */
export const makeBackupActivities = () => ({
  /** Throws `not_running`. */
  async beginBackup(id: string): Promise<DumpPlace> {
    const { tenant_id, database_id, deploy_server_id } = await theExecution(id)
    const database = await findDatabase(database_id)
    const place = database?.runs ? await placeOfVolumes(database) : null
    if (!place) throw ApplicationFailure.nonRetryable('The database does not run', 'not_running')
    await BackupExecution.updateOne(
      { _id: id, tenant_id, started_at: null },
      { $set: { started_at: new Date() } },
    )
    return { ...place, deploy_server_id, service_id: database_id }
  },

  /** Removes what there is of a copy. Returns whether there may be more. */
  async dropCopy(id: string): Promise<boolean> {
    const execution = await findBackupExecution(id)
    if (!execution) return false
    const { tenant_id } = execution
    // No host writes to it from now on: none counts its attempts so far.
    await BackupExecution.updateOne(
      { _id: id, tenant_id },
      { $inc: { attempt: 1_000_000 }, $set: { copy: null } },
    )
    if (execution.archive_id) await noteUntidy(execution.archive_id)
    return dropParts(execution)
  },

  /**
   * Takes room for a scratch engine on a worker. `waits`: those of other backups have the room. Without room a copy is
   * read on the worker of the database, or on any.
   */
  placeScratch: (id: string): Promise<ReadingPlace | 'waits'> =>
    transaction(async () => {
      const execution = await theExecution(id)
      const { tenant_id, deploy_server_id, image, memory_mib } = execution
      const server = await lockParent(deployServerResource, tenant_id, deploy_server_id)
      const place = await placeTogether(
        server,
        { next: 0 },
        { itself: id, node: null, memory_mib, ports: 0 },
      ).catch((error: unknown) => {
        if (error instanceof NoRoom) return null
        throw error
      })
      if (!place) {
        const others = { tenant_id, deploy_server_id, scratch: { $ne: null }, _id: { $ne: id } }
        return (await BackupExecution.exists(others)) ? 'waits' : readingPlace(execution)
      }
      const scratch = { node: place.node, memory_mib }
      await BackupExecution.updateOne({ _id: id, tenant_id }, { $set: { scratch } })
      const machine_id = server.nodes.find(({ name }) => name === place.node)?.machine_id ?? ''
      const host_id = (await hostsOfMachines([machine_id])).get(machine_id)
      return host_id ? { host_id, machine_id, deploy_server_id, image } : readingPlace(execution)
    }, id),

  async releaseScratch(id: string): Promise<void> {
    await BackupExecution.updateOne({ _id: id }, { $set: { scratch: null } }).setOptions(everyTenant)
  },

  async noteVerified(id: string, { by, tables, rows, damaged_segments = [] }: Verified): Promise<void> {
    const at = new Date()
    const look_at = new Date(at.getTime() + verifiedForMs)
    const set = { verified: { by, tables, rows, at }, look_at, scratch: null }
    await BackupExecution.updateOne({ _id: id }, { $set: set }).setOptions(everyTenant)
    const { archive_id } = await theExecution(id)
    if (archive_id) await noteDamagedSegments(archive_id, damaged_segments)
  },

  /** Has those removed that its schedule no longer keeps. */
  async removeOldBackupsOf(id: string): Promise<void> {
    const execution = await findBackupExecution(id)
    if (execution?.backup_id) await tidySoon({ _id: execution.backup_id, tenant_id: execution.tenant_id })
  },
})

export type BackupActivities = ReturnType<typeof makeBackupActivities>

async function theExecution(id: string): Promise<BackupExecutionDocument> {
  const execution = await findBackupExecution(id)
  if (!execution) throw ApplicationFailure.nonRetryable('The backup no longer exists', 'not_found')
  return execution
}

/** The worker of the database, if it is there; else any. */
async function readingPlace({
  database_id,
  deploy_server_id,
}: BackupExecutionDocument): Promise<ReadingPlace> {
  const database = await findDatabase(database_id)
  const server = await DeployServer.findById(deploy_server_id).setOptions(everyTenant).lean()
  const workers = (server?.nodes ?? []).filter(({ name, lost_at }) => name !== 'cp' && lost_at === null)
  const machines = workers
    .toSorted((a, b) => Number(b.name === database?.volume_node) - Number(a.name === database?.volume_node))
    .flatMap(({ machine_id }) => machine_id ?? [])
  const hosts = await hostsOfMachines(machines)
  const machine_id = machines.find((id) => hosts.has(id))
  const host_id = machine_id && hosts.get(machine_id)
  if (!machine_id || !host_id) throw new Error('no worker of the deploy server is on a host')
  return { host_id, machine_id, deploy_server_id, image: null }
}
