import type { CopyOrder, DumpOrder, DumpReport, ScratchOrder } from '../../lib/backup-protocol.ts'
import { ownerLabel } from '../../lib/deploy-protocol.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import {
  BackupExecution,
  type BackupExecutionDocument,
  copyCredentialsOf,
  copyKeyOf,
} from './backup-executions.ts'
import { logAfter } from './archive-orders.ts'
import { readSegment } from './archive-segments.ts'
import { Archive } from './archives.ts'
import { BackupPart, dropParts, keepPart, readPart } from './backup-parts.ts'
import { credentialsOf, Database, type DatabaseDocument, findDatabase } from './databases.ts'
import type { DeployServerDocument } from './deploy-servers.ts'
import type { Configuration, DatabaseCredentials } from './engines/engine.ts'
import { type DatabaseType, engineOf } from './engines/index.ts'
import { volumeOf } from './storages.ts'

// What hosts ask and tell about copies of databases.

type Server = Pick<DeployServerDocument, '_id' | 'tenant_id' | 'nodes'>

/**
 * Begins an attempt to write the copy: what an earlier one has sent is of no use. Null: that one has sent all, and its host did
 * not learn of it. Throws NotFound, also if a later attempt has begun.
 */
export async function beginDump(server: Server, _id: string, attempt: number): Promise<DumpOrder | null> {
  const of = { _id, tenant_id: server.tenant_id, deploy_server_id: server._id, status: 'creating' as const }
  const execution = await BackupExecution.findOneAndUpdate(
    { ...of, copy: null, attempt: { $lte: attempt } },
    { $set: { attempt } },
    { returnDocument: 'after' },
  ).lean()
  if (!execution && (await BackupExecution.exists({ ...of, copy: { $ne: null } }))) return null
  const database =
    execution && (await Database.findOne({ _id: execution.database_id, tenant_id: server.tenant_id }).lean())
  const machine_id = server.nodes.find(({ name }) => name === database?.volume_node)?.machine_id
  if (!execution || !database || !machine_id) throw new NotFound('backup execution')
  while (await dropParts(execution, attempt)) {}
  const { copies, archive, healthy } = engineOf(database.type)
  const { dump, compressed } = execution.archive_id && archive ? { ...archive, compressed: false } : copies
  return {
    attempt,
    key: await copyKeyOf(execution),
    machine_id,
    service_id: database._id,
    script: dump,
    compress: !compressed,
    healthy,
  }
}

/** Throws NotFound, also for a part of an attempt that another one has followed. */
export async function takePart(
  { _id: deploy_server_id, tenant_id }: Server,
  _id: string,
  { attempt, index }: { attempt: number; index: number },
  bytes: Buffer,
): Promise<void> {
  const execution = await BackupExecution.findOne({
    _id,
    tenant_id,
    deploy_server_id,
    attempt,
    copy: null,
  }).lean()
  if (!execution) throw new NotFound('attempt of the backup')
  await keepPart(execution, index, bytes)
}

/** Records a whole copy. Idempotent. Throws NotFound as takePart, and `parts_missing`. */
export const finishDump = (
  { _id: deploy_server_id, tenant_id }: Server,
  _id: string,
  { attempt, ...copy }: DumpReport,
): Promise<void> =>
  transaction(async () => {
    const execution = await BackupExecution.findOne({ _id, tenant_id, deploy_server_id, attempt }).lean()
    if (!execution) throw new NotFound('attempt of the backup')
    if (execution.copy) return
    if (execution.archive_id) await needCurrent(execution, copy.base)
    const there = await BackupPart.countDocuments({ execution_id: _id, tenant_id, attempt })
    if (there !== copy.parts) {
      const detail = `${there} of ${copy.parts} parts have arrived`
      throw new Problem(409, 'parts_missing', 'The copy is incomplete', detail)
    }
    await BackupExecution.updateOne({ _id, tenant_id }, { $set: { copy } })
  }, _id)

/** A base of an archive that has ended meanwhile would not lead to any moment. */
async function needCurrent(
  { archive_id, tenant_id }: BackupExecutionDocument,
  base: DumpReport['base'],
): Promise<void> {
  const current = { _id: archive_id ?? '', tenant_id, is_current: true }
  if (base?.archive_id === archive_id && (await Archive.exists(current))) return
  const detail = 'The archive of the log to which it belongs has ended'
  throw new Problem(409, 'archive_ended', 'The archive has ended', detail)
}

/** A copy to read: for a look at it, or for the new volume of a database of this deploy server. Throws NotFound. */
export async function copyFor(server: Server, id: string, databaseId: string | null): Promise<CopyOrder> {
  const execution = await readableBy(server, id, databaseId)
  const { copy } = execution
  if (!copy) throw new NotFound('copy')
  const { copies } = engineOf(execution.type)
  const { parts, dump_bytes, stored_sha256 = null, sha256 = null, counts } = copy
  const at = databaseId === null ? null : ((await findDatabase(databaseId))?.refill?.at ?? null)
  const log = databaseId === null || at ? await logAfter(execution, at) : null
  const target = log?.target ?? null
  return {
    key: await copyKeyOf(execution),
    parts,
    dump_bytes,
    stored_sha256,
    sha256,
    compressed: !copies.compressed,
    counts,
    engine: await (databaseId === null
      ? scratchFor(server, execution)
      : refillFor(server, execution, databaseId, target)),
    log,
  }
}

/** Throws NotFound. */
export const partFor = async (
  server: Server,
  id: string,
  databaseId: string | null,
  index: number,
): Promise<Buffer> => readPart(await readableBy(server, id, databaseId), index)

/** Throws as readSegment, and NotFound for a segment of another archive than that of the backup. */
export async function segmentFor(
  server: Server,
  id: string,
  databaseId: string | null,
  name: string,
): Promise<Buffer> {
  const { archive_id, tenant_id } = await readableBy(server, id, databaseId)
  if (!archive_id) throw new NotFound('archive')
  return readSegment(tenant_id, archive_id, name)
}

/** A database may take copies of all deploy servers of its tenant. */
async function readableBy(
  { _id: deploy_server_id, tenant_id }: Server,
  _id: string,
  databaseId: string | null,
): Promise<BackupExecutionDocument> {
  const execution = await BackupExecution.findOne({ _id, tenant_id }).lean()
  if (!execution) throw new NotFound('backup execution')
  if (databaseId === null) {
    if (execution.deploy_server_id !== deploy_server_id) throw new NotFound('backup execution')
    return execution
  }
  const takes = { _id: databaseId, tenant_id, deploy_server_id, 'refill.execution_id': _id }
  if (!(await Database.exists(takes))) throw new NotFound('backup execution')
  return execution
}

/** Null if there was no room for it. */
async function scratchFor(
  { nodes }: Server,
  execution: BackupExecutionDocument,
): Promise<ScratchOrder | null> {
  const { type, image, cpu_cores, memory_mib, scratch, configuration: made = {} } = execution
  const machine_id = nodes.find(({ name }) => name === scratch?.node)?.machine_id
  if (!machine_id) return null
  const credentials = await copyCredentialsOf(execution)
  const configuration = fillingOf(type, made)
  const of = { type, image, cpu_cores, memory_mib, configuration, credentials }
  const copy = { isBase: execution.archive_id !== null, target: null, adopts: false, ...credentials }
  return { ...scratchOf(of, copy), machine_id, volume: null }
}

async function refillFor(
  { nodes }: Server,
  execution: BackupExecutionDocument,
  databaseId: string,
  target: string | null,
): Promise<ScratchOrder | null> {
  const database = await findDatabase(databaseId)
  const machine_id = nodes.find(({ name }) => name === database?.volume_node)?.machine_id
  if (!database?.refill || !machine_id) return null
  const { storage_id, image } = database.refill
  const credentials = await credentialsOf(database)
  const { type, configuration: own } = database
  // With its own settings, since it starts with them afterwards: what does not fit fails while the database serves.
  const configuration = { ...own, ...fillingOf(type, own) }
  const { password } = await copyCredentialsOf(execution)
  const copy = { isBase: execution.archive_id !== null, target, adopts: true, password }
  return {
    ...scratchOf({ ...database, image, configuration, credentials }, copy),
    machine_id,
    volume: { name: volumeOf(storage_id), labels: { [ownerLabel('database')]: databaseId } },
  }
}

const fillingOf = (type: DatabaseType, configuration: Configuration): Configuration =>
  engineOf(type).filling?.(configuration) ?? {}

/** What an engine takes. */
interface Taken {
  /** It is a copy of an engine's files. */
  isBase: boolean
  /** The moment to which the engine then goes on. */
  target: string | null
  /** The copy may be of another database, or from when this one had another password. */
  adopts: boolean
  /** That of the generated user in the copy. */
  password: string
}

function scratchOf(
  {
    type,
    image,
    cpu_cores,
    memory_mib,
    configuration,
    credentials,
  }: Pick<DatabaseDocument, 'type' | 'image' | 'cpu_cores' | 'memory_mib'> & {
    configuration: Configuration
    credentials: DatabaseCredentials
  },
  { isBase, target, adopts, password }: Taken,
): Omit<ScratchOrder, 'machine_id' | 'volume'> {
  const engine = engineOf(type)
  const archive = isBase ? engine.archive : undefined
  const command = engine.command({ memory_mib, configuration, credentials })
  return {
    image,
    env: { ...engine.env(credentials), KEELSON_COPY_PASSWORD: password },
    command: archive ? archive.command(command, target) : command,
    cpu_cores,
    memory_mib,
    data_path: engine.data_path,
    stop_grace_sec: engine.stop_grace_sec,
    healthy: engine.healthy,
    restore: archive?.fill ?? engine.copies.restore,
    files: archive
      ? { fill_segments: archive.fillSegments, begin: archive.begin, adopt: adopts ? archive.adopt : null }
      : null,
    count: engine.copies.count,
  }
}
