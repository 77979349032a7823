import { ApplicationFailure } from '@temporalio/activity'
import type { ServingPlace } from '../../lib/deploy-protocol.ts'
import { noteActivity } from '../../models/activity.ts'
import { transaction } from '../../models/database.ts'
import { Database, type DatabaseDocument, findDatabase, isFilling } from '../../models/deploy/databases.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { leadPathsTo } from '../../models/deploy/attachment-acceptance.ts'
import { endBackups } from '../../models/deploy/database-acceptance.ts'
import { engineOf } from '../../models/deploy/engines/index.ts'
import { findKeptVolumes, keepVolumesOf, type KeptVolumesDocument } from '../../models/deploy/kept-volumes.ts'
import { type PinnedPlace, placePinned } from '../../models/deploy/places.ts'
import { forgetStorages, mountsOf, volumeOf } from '../../models/deploy/storages.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { permanently } from '../failures.ts'
import { balancersOf, type Routed } from './deployments.ts'
import { makeRefillActivities } from './refills.ts'
import {
  certificateOfDatabase,
  leadClients,
  publish,
  unpublish,
} from '../../models/deploy/published-databases.ts'
import { endWithinSec, placeOfVolumes, type PlaceOfVolumes, type WantedVolumes } from './volumes.ts'

export type { BeginsWith, ReturnsTo } from '../../models/deploy/databases.ts'

/** What a workflow knows of a database. */
export interface DatabaseFacts {
  deploy_server_id: string
  /** The name of its engine. */
  title: string
  /** Where its volumes are. Null: it was never placed, or its worker is on no host. */
  at: PlaceOfVolumes | null
  image: string
  healthy: string
  stop_grace_sec: number
  /** Null before it is placed. */
  serving: ServingPlace | null
  /** It runs without a port. */
  isolated: boolean
  /** Clients outside are led to it, or were until an operation ended in the middle. */
  published: boolean
  /** Its data may have users of attached instances. */
  has_users: boolean
}

/** What it was started with before; null: it did not run, or never did. */
export type FormerStart = Pick<DatabaseDocument, 'runs' | 'applied'>

/** Activities of databases: short reads and writes of MongoDB. */
export const makeDatabaseActivities = () => ({
  async databaseFacts(id: string): Promise<DatabaseFacts> {
    const database = await theDatabase(id)
    const { deploy_server_id, type, image, isolated, volume_node, has_users } = database
    const machine_port = isolated ? null : database.machine_port
    const { title, healthy, stop_grace_sec } = engineOf(type)
    const server = await DeployServer.findById(deploy_server_id).setOptions(everyTenant).lean()
    const ip_address = server?.nodes.find(({ name }) => name === volume_node)?.ip_address
    return {
      deploy_server_id,
      title,
      at: await placeOfVolumes(database),
      image,
      healthy,
      stop_grace_sec,
      serving: ip_address ? { service_id: id, ip_address, machine_port } : null,
      isolated,
      has_users,
      published: database.published !== null || (await certificateOfDatabase(database)) !== null,
    }
  },

  /** Gives it a worker and a port for good, or checks that its worker has room for it. Throws `no_room`, `worker_away`. */
  async placeDatabase(id: string): Promise<void> {
    const { tenant_id, deploy_server_id } = await theDatabase(id)
    await permanently(() =>
      transaction(async () => {
        const database = await theDatabase(id)
        const { node: volume_node, machine_port }: PinnedPlace = await placePinned(database, id, database)
        await Database.updateOne({ _id: id, tenant_id }, { $set: { volume_node, machine_port } })
      }, deploy_server_id),
    )
  },

  /** Has its service run from now on, with its present settings. Idempotent within an operation. */
  async settleStart(id: string, former: FormerStart): Promise<void> {
    const { tenant_id, version, image, cpu_cores, memory_mib, configuration, ...database } =
      await theDatabase(id)
    const mounts = await mountsOf({ _id: id, tenant_id })
    const starts = (former.applied?.starts ?? 0) + 1
    const applied = { version, image, cpu_cores, memory_mib, configuration, mounts, starts }
    if (database.runs && database.applied?.starts === starts) return
    await Database.updateOne({ _id: id, tenant_id }, { $set: { runs: true, isolated: false, applied } })
  },

  formerStart: async (id: string): Promise<FormerStart> => {
    const { runs, applied } = await theDatabase(id)
    return { runs, applied }
  },

  /** Its service is not to run. */
  async settleStop(id: string): Promise<void> {
    await Database.updateOne({ _id: id }, { $set: { runs: false } }).setOptions(everyTenant)
  },

  /** Has it be as it was before a start. */
  async takeStartBack(id: string, { runs, applied }: FormerStart): Promise<void> {
    const before = { runs, applied, isolated: false }
    await Database.updateOne({ _id: id }, { $set: before }).setOptions(everyTenant)
  },

  /**
   * It has answered: its volumes have something to lose, and it begins no more. Paths and clients outside are led to where
   * it is now; returns how these are.
   */
  async noteAnswered(id: string): Promise<Routed | null> {
    const answered = { has_data: true, begins_with: null }
    await Database.updateOne({ _id: id }, { $set: answered }).setOptions(everyTenant)
    const database = await theDatabase(id)
    if (database.has_users) await leadPathsTo(database)
    const balanced = await leadClients(id)
    return balanced && { ...balanced, host_ids: await balancersOf(balanced.lb_id) }
  },

  /** Throws `quota_exceeded`, `no_load_balancer`. */
  publishDatabase: (id: string): Promise<void> => permanently(async () => publish(await theDatabase(id))),

  unpublishDatabase: async (id: string): Promise<void> => unpublish(await theDatabase(id)),

  certificateOfDatabase: async (id: string): Promise<string | null> =>
    certificateOfDatabase(await theDatabase(id)),

  /** Notes why it did not start, with the last that it wrote. */
  async noteFailedStart(id: string, output: string[]): Promise<void> {
    const database = await findDatabase(id)
    if (!database || output.length === 0) return
    const { tenant_id } = database
    const message = 'The database did not start; `data.output` has its last output'
    await noteActivity({ tenant_id, resource_id: id, kind: 'start_failed', message, data: { output } })
  },

  /** The volumes that are to stay: those that it mounts and will mount, unless all go. Null: it has no place. */
  async volumesOfDatabase(id: string, keeps: 'all' | 'none'): Promise<WantedVolumes | null> {
    const database = (await findDatabase(id)) ?? (await findKeptVolumes(id))
    const place = database && (await placeOfVolumes(database))
    if (!place) return null
    const names = keeps === 'none' ? [] : await namesOf(database)
    return {
      ...place,
      names,
      within_sec: endWithinSec(engineOf(database.type).stop_grace_sec, keeps === 'all'),
    }
  },

  /** Whether it may have data. One that never answered has nothing to keep. */
  async databaseHasData(id: string): Promise<boolean> {
    const { has_data, volume_node } = await theDatabase(id)
    return has_data && volume_node !== null
  },

  /** Its volumes are gone. It may be made on any worker. */
  async noteVolumesDestroyed(id: string): Promise<void> {
    const gone = { volume_node: null, machine_port: null, applied: null, has_data: false, former_volumes: [] }
    await Database.updateOne({ _id: id }, { $set: gone }).setOptions(everyTenant)
  },

  /** Keeps its volumes when it is gone. */
  async keepDatabaseVolumes(id: string): Promise<void> {
    const database = await theDatabase(id)
    await keepVolumesOf(database)
    await endBackups(database)
  },

  ...makeRefillActivities(),

  /** Deletes the records of its storages and schedules. */
  async forgetDatabaseStorages(id: string): Promise<void> {
    const database = (await findDatabase(id)) ?? (await findKeptVolumes(id))
    if (!database) return
    await forgetStorages(database.tenant_id, { owner_id: id })
    await endBackups(database)
  },
})

export type DatabaseActivities = ReturnType<typeof makeDatabaseActivities>

/** The volumes that it mounts and will mount, and those that are kept for it. */
async function namesOf(database: DatabaseDocument | KeptVolumesDocument): Promise<string[]> {
  const mounts = await mountsOf(database)
  const live = 'applied' in database ? database : null
  const ids = [
    ...[...mounts, ...(live?.applied?.mounts ?? [])].map((mount) => mount.id),
    ...database.former_volumes.map(({ storage_id }) => storage_id),
    ...(live?.refill && isFilling(live) ? [live.refill.storage_id] : []),
  ]
  return [...new Set(ids.map(volumeOf))]
}

async function theDatabase(id: string): Promise<DatabaseDocument> {
  const database = await findDatabase(id)
  if (!database) throw ApplicationFailure.nonRetryable('The database no longer exists', 'not_found')
  return database
}
