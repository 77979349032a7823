import { newId } from '../../lib/ids.ts'
import { InvalidInput, NotFound, StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By, create, mayReach } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { mine } from '../resources.ts'
import {
  type BackupExecutionDocument,
  backupExecutionResource,
  copyCredentialsOf,
} from './backup-executions.ts'
import { endArchive } from './archives.ts'
import { needNoBackup } from './backup-acceptance.ts'
import { useBackup } from './backup-uses.ts'
import { forgetBackups } from './backups.ts'
import { makeTls } from './database-tls.ts'
import {
  Database,
  type DatabaseDocument,
  databaseResource,
  makeCredentials,
  sealCredentials,
} from './databases.ts'
import { deployServerResource } from './deploy-servers.ts'
import type { Configuration } from './engines/engine.ts'
import {
  type DatabaseImages,
  type DatabaseType,
  engineOf,
  imageOf,
  majorUpgradesOf,
  takesCopyOf,
  takesFilesOf,
  upgradesOf,
} from './engines/index.ts'
import { takeKeptVolumes } from './kept-volumes.ts'
import { baseFor, changePointInTime, type PointInTimeChange } from './point-in-time.ts'
import { addDataStorage } from './storages.ts'

// The acceptance rules for databases.

export interface NewDatabase {
  name: string
  tags: Record<string, string>
  /** May be left out with `volume_id`. */
  type?: DatabaseType | undefined
  /** Default: the newest, or that of the kept volume. */
  version?: string | undefined
  cpu_cores: number
  memory_mib?: number | undefined
  configuration: Record<string, unknown>
  /** Kept volumes of a deleted database. */
  volume_id?: string | undefined
  /** A backup with which it begins, of a database of any deploy server that the caller may reach. */
  execution_id?: string | undefined
  /** A database, perhaps a deleted one, that is recovered to a moment: `at`. */
  database_id?: string | undefined
  at?: Date | undefined
  point_in_time: PointInTimeChange
}

/**
 * Accepts a database. Throws NotFound, StateConflict unless the deploy server is ready or changing, NameTaken, and
 * InvalidInput for what its engine does not take.
 */
export const acceptDatabase = (
  by: By,
  deployServerId: string,
  asked: NewDatabase,
  images: DatabaseImages,
): Promise<Accepted<DatabaseDocument>> =>
  transaction(async () => {
    const { tenant_id } = by
    const { name, tags, cpu_cores, volume_id, database_id, at } = asked
    const server = await lockParent(deployServerResource, tenant_id, deployServerId)
    if (server.status === 'creating') throw new StateConflict('create a database', server.status)
    const kept = volume_id === undefined ? null : await takeKeptVolumes(tenant_id, deployServerId, volume_id)
    if ((database_id === undefined) !== (at === undefined))
      throw refused(at ? '/database_id' : '/at', 'is required to recover a database to a moment')
    const base = database_id && at ? await baseFor(by, database_id, at) : null
    const execution_id = base?._id ?? asked.execution_id
    const copy =
      base ?? (execution_id === undefined ? null : await wholeCopy(by, execution_id, '/execution_id'))
    if (kept && copy) throw refused('/execution_id', 'the volume has data already')
    const type = asked.type ?? kept?.type ?? copy?.type
    if (type === undefined) throw refused('/type', 'is required without a volume or a backup')
    if (kept && type !== kept.type) throw refused('/type', `the volume has the data of ${kept.type}`)
    if (copy && type !== copy.type) throw refused('/type', `the backup has the data of ${copy.type}`)
    const { versions, memory_mib } = engineOf(type)
    const version = asked.version ?? kept?.version ?? copy?.version ?? versions[0] ?? ''
    if (version !== kept?.version && version !== copy?.version) needVersion(type, version, kept?.version)
    if (copy) {
      needTakes(version, copy)
      await useBackup(copy)
    }
    const id = kept?._id ?? newId()
    const memory = asked.memory_mib ?? memory_mib.usual
    needMemory(type, memory)
    const its = { _id: id, tenant_id, deploy_server_id: deployServerId, type }
    const begins_with =
      execution_id === undefined ? null : { execution_id, ...(at && { at: at.toISOString() }) }
    const accepted = await create(by, databaseResource, {
      id,
      input: begins_with ?? {},
      fields: {
        name,
        tags,
        deploy_server_id: deployServerId,
        type,
        version,
        image: imageOf(type, version, images),
        cpu_cores,
        memory_mib: memory,
        configuration: checkedConfiguration(type, asked.configuration),
        credentials_sealed: kept?.credentials_sealed ?? (await credentialsFor(id, copy)),
        volume_node: kept?.volume_node ?? null,
        machine_port: null,
        runs: false,
        applied: null,
        has_data: kept !== null,
        begins_with,
        refill: null,
        isolated: false,
        former_volumes: kept?.former_volumes ?? [],
        archiving: await changePointInTime(its, null, asked.point_in_time),
        has_users: kept !== null || copy !== null,
        ...(await makeTls(id)),
        published: null,
        attachments_made: 0,
      },
    })
    if (!kept) await addDataStorage(accepted.document, engineOf(type).data_path)
    return accepted
  }, by.tenant_id)

export interface DatabaseChanges {
  version?: string | undefined
  cpu_cores?: number | undefined
  memory_mib?: number | undefined
  /** Replaces the former one. */
  configuration?: Record<string, unknown> | undefined
  /** At once, without a restart. */
  point_in_time?: PointInTimeChange | undefined
  tags?: Record<string, string> | undefined
}

/** Changes what the next start or restart applies. Throws NotFound, StateConflict while it is deleted, InvalidInput. */
export const changeDatabase = (
  { _id, tenant_id }: DatabaseDocument,
  { version, memory_mib, configuration, point_in_time, ...changes }: DatabaseChanges,
  images: DatabaseImages,
): Promise<DatabaseDocument> =>
  transaction(async () => {
    const database = await Database.findOne({ _id, tenant_id }).lean()
    if (!database) throw new NotFound('database')
    if (database.status === 'deleting') throw new StateConflict('change', database.status)
    const { type, applied } = database
    const present = applied?.version ?? database.version
    if (version !== undefined && version !== present) needVersion(type, version, present)
    if (memory_mib !== undefined) needMemory(type, memory_mib)
    const set = {
      ...changes,
      memory_mib,
      ...(version === undefined ? {} : { version, image: imageOf(type, version, images) }),
      configuration: configuration && checkedConfiguration(type, configuration),
      archiving: point_in_time && (await changePointInTime(database, database.archiving, point_in_time)),
    }
    const given = Object.fromEntries(Object.entries(set).filter(([, value]) => value !== undefined))
    const changed = await Database.findOneAndUpdate(
      { _id, tenant_id },
      { $set: given },
      { returnDocument: 'after' },
    ).lean()
    if (!changed) throw new NotFound('database')
    return changed
  }, _id)

/**
 * Without `delete_volumes` the volumes are kept, unless the platform deletes all that a tenant has. Backups stay, and no
 * more are made.
 */
export const acceptDatabaseDeletion = (
  by: By,
  id: string,
  { delete_volumes = true }: { delete_volumes?: boolean },
): Promise<Accepted<DatabaseDocument>> =>
  begin(by, databaseResource, id, 'delete', { input: { delete_volumes } })

/** No more backups are made of a database that is gone. One that could not be deleted keeps its schedules. Idempotent. */
export const endBackups = ({ _id, tenant_id }: Pick<DatabaseDocument, '_id' | 'tenant_id'>): Promise<void> =>
  transaction(async () => {
    await forgetBackups(tenant_id, { database_id: _id })
    await endArchive({ _id, tenant_id })
  }, _id)

/**
 * Starts a database, or restarts one. If its creation from a backup failed, it begins with the backup again. Throws as
 * `begin`.
 */
export const acceptDatabaseStart = (
  by: By,
  id: string,
  verb: 'start' | 'restart',
): Promise<Accepted<DatabaseDocument>> =>
  transaction(async () => {
    const { begins_with } = await mine(databaseResource, by, id)
    return begin(by, databaseResource, id, verb, { input: begins_with ?? {} })
  }, id)

/**
 * Has a backup, what there was at a moment, or a former volume take the place of a database's data. Throws as `begin`, NotFound,
 * InvalidInput for what it does not take, and StateConflict for a backup that is damaged or not whole.
 */
export const acceptRestore = (
  by: By,
  id: string,
  asked: { execution_id: string } | { at: Date } | { volume_id: string },
  images: DatabaseImages,
): Promise<Accepted<DatabaseDocument>> =>
  transaction(async () => {
    const { type, version, ...database } = await mine(databaseResource, by, id)
    if ('volume_id' in asked) {
      const { volume_id } = asked
      const former = database.former_volumes.find(({ storage_id }) => storage_id === volume_id)
      if (!former) throw refused('/volume_id', 'is not one of `former_volumes`')
      const image = imageOf(type, former.version, images)
      return begin(by, databaseResource, id, 'restore', { input: { volume_id, image } })
    }
    const copy =
      'at' in asked
        ? await baseFor(by, id, asked.at)
        : await wholeCopy(by, asked.execution_id, '/execution_id')
    if (type !== copy.type) throw refused('/execution_id', `the backup has the data of ${copy.type}`)
    needTakes(version, copy)
    await useBackup(copy)
    const at = 'at' in asked ? { at: asked.at.toISOString() } : {}
    return begin(by, databaseResource, id, 'restore', { input: { execution_id: copy._id, ...at } })
  }, id)

/** Brings a running database to another line of its engine. Throws as `begin`, and InvalidInput. */
export const acceptUpgrade = (
  by: By,
  id: string,
  version: string,
  images: DatabaseImages,
): Promise<Accepted<DatabaseDocument>> =>
  transaction(async () => {
    const database = await mine(databaseResource, by, id)
    const { type, applied } = database
    // It makes a backup of its own, for which it has ended the connections of clients.
    await needNoBackup(database)
    const present = applied?.version ?? database.version
    const offered = majorUpgradesOf(type, present)
    if (!offered.includes(version)) {
      const minor = upgradesOf(type, present).includes(version)
      const choice = offered.length
        ? `the version can be ${offered.join(' or ')}`
        : 'there is no major upgrade'
      throw refused('/version', minor ? 'can use the data as it is: PATCH the version, and restart' : choice)
    }
    return begin(by, databaseResource, id, 'upgrade', {
      input: { version, image: imageOf(type, version, images) },
    })
  }, id)

/** Has the next start destroy a former volume. Throws NotFound, and StateConflict while the database goes back to it. */
export async function forgetFormerVolume(
  { _id, tenant_id, status }: DatabaseDocument,
  storage_id: string,
): Promise<void> {
  const former = { _id, tenant_id, 'former_volumes.storage_id': storage_id }
  const isOpen = { $eq: ['$refill.operation_id', '$operation_id'] }
  const returns = { 'refill.storage_id': storage_id, $expr: isOpen }
  const { modifiedCount } = await Database.updateOne(
    { ...former, $nor: [returns] },
    { $pull: { former_volumes: { storage_id } } },
  )
  if (modifiedCount) return
  if (await Database.exists(former)) throw new StateConflict('delete the former volume', status)
  throw new NotFound('former volume')
}

accepts(databaseResource, {
  verbs: {
    delete: acceptDatabaseDeletion,
    start: (by, id) => acceptDatabaseStart(by, id, 'start'),
    restart: (by, id) => acceptDatabaseStart(by, id, 'restart'),
  },
})

const refused = (pointer: string, message: string) => new InvalidInput(422, [{ pointer, message }])

/** New ones, or those that may be in the copy. */
const credentialsFor = async (id: string, copy: BackupExecutionDocument | null): Promise<string> =>
  copy ? sealCredentials(id, await copyCredentialsOf(copy)) : makeCredentials(id)

async function wholeCopy(by: By, id: string, pointer: string): Promise<BackupExecutionDocument> {
  const copy = await mine(backupExecutionResource, by, id).catch((error: unknown) => {
    throw error instanceof NotFound ? refused(pointer, 'is not a backup') : error
  })
  if (!mayReach(by, copy.deploy_server_id)) throw refused(pointer, 'is not a backup')
  if (copy.status !== 'succeeded') throw new StateConflict('restore the backup', copy.status)
  return copy
}

function needTakes(version: string, copy: BackupExecutionDocument): void {
  const takes = copy.archive_id
    ? takesFilesOf(copy.type, version, copy.version)
    : takesCopyOf(version, copy.version)
  if (!takes)
    throw refused(
      '/execution_id',
      `the backup was written by ${copy.version}, and ${version} cannot restore it`,
    )
}

/** `present`: of the data that are there. Only what takes them as they are is offered. */
function needVersion(type: DatabaseType, version: string, present: string | undefined): void {
  const offered = present === undefined ? engineOf(type).versions : upgradesOf(type, present)
  if (offered.includes(version)) return
  const message =
    present === undefined
      ? `must be one of ${offered.join(', ')}`
      : `${engineOf(type).title} ${version} cannot use the data of ${present} as it is: ${offered.length ? `the version can be ${offered.join(' or ')}` : 'there is no upgrade'}`
  throw refused('/version', message)
}

function needMemory(type: DatabaseType, memoryMib: number): void {
  const { title, memory_mib } = engineOf(type)
  if (memoryMib < memory_mib.least)
    throw refused('/memory_mib', `${title} needs at least ${memory_mib.least} MiB`)
}

function checkedConfiguration(type: DatabaseType, configuration: Record<string, unknown>): Configuration {
  const parsed = engineOf(type).configuration.safeParse(configuration)
  if (parsed.success) return parsed.data as Configuration
  const known = Object.keys(engineOf(type).configuration.shape)
  throw new InvalidInput(
    422,
    parsed.error.issues.flatMap((issue) =>
      issue.code === 'unrecognized_keys'
        ? issue.keys.map((key) => ({
            pointer: `/configuration/${key}`,
            message: `is not one of ${known.join(', ')}`,
          }))
        : [{ pointer: `/configuration/${issue.path.join('/')}`, message: issue.message }],
    ),
  )
}
