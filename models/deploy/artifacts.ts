import { createHash } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { NotFound, Problem, StateConflict } from '../../lib/problem.ts'
import { type By, create } from '../acceptance.ts'
import { type BlobName, dropBlobs, dropUnkept, keepBlob, readBlob, storeBlob } from '../blobs.ts'
import { transaction } from '../database.ts'
import { type Accepted, Operation } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { defineResource, mine, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import { deployServerResource } from './deploy-servers.ts'

export const artifactStates = states({
  creating: {},
  ready: {},
  failed: {},
  cancelled: {},
  error: {},
})

/** A folder of files for a worker, sent as an archive: to build an application from. */
export interface ArtifactDocument extends ResourceDocument<StateOf<typeof artifactStates>> {
  deploy_server_id: string
  /** The name of the folder. */
  folder: string
  /** Of the archive. Null: not known before it is unpacked. */
  sha256: string | null
  size_bytes: number
  /** The archive, until it is unpacked. */
  blob: BlobName | null
  /** The archive is sent in parts to the worker (uploads.ts). Null: it came with the request. */
  upload: { token_hash: string; expires_at: Date; whole: boolean } | null
  /** Its bytes are on their way to the worker. */
  pushing: boolean
  /** The worker that has it. */
  worker: string | null
  path: string | null
  files: number | null
  unpacked_bytes: number | null
  /** The worker has three newer versions of the folder, and not this one. */
  superseded?: true
}

const optional = { type: String, default: null }
const schema = resourceSchema<ArtifactDocument>(
  {
    deploy_server_id: { type: String, required: true },
    folder: { type: String, required: true },
    sha256: optional,
    size_bytes: { type: Number, required: true },
    blob: { type: Schema.Types.Mixed, default: null },
    upload: { type: Schema.Types.Mixed, default: null },
    pushing: { type: Boolean, default: false },
    worker: optional,
    path: optional,
    files: { type: Number, default: null },
    unpacked_bytes: { type: Number, default: null },
    superseded: Boolean,
  },
  artifactStates,
  'artifacts',
  { within: 'deploy_server_id' },
)
schema.index({ deploy_server_id: 1, created_at: -1 })
export const Artifact = mongoose.model<ArtifactDocument>('Artifact', schema)
export const artifactResource = defineResource('artifact', Artifact, artifactStates)

/** The worker that builds, and so has the artifacts: it is there as long as the deploy server. */
export const builder = 'w1'

/** Versions of each folder that the worker keeps (drivers/swarm/app-folders.ts). */
const keptVersions = 3
/** Records of artifacts that nothing can be built from. */
const keptRecords = 200
/** Each artifact adds one record, and removes up to so many. */
const atOnce = 10
/** Each may keep a workflow open for a day, and 16 MiB in the store or 2 GiB on the worker. */
const openAtMost = 50

/** The fields of an artifact of which the worker has nothing yet. */
export const untouched = {
  tags: {},
  upload: null,
  pushing: false,
  worker: null,
  path: null,
  files: null,
  unpacked_bytes: null,
}

/**
 * Makes room for another artifact, while the deploy server is locked: removes the oldest records that nothing needs. Throws
 * `too_many_uploads`.
 */
export async function makeRoom(its: { tenant_id: string; deploy_server_id: string }): Promise<void> {
  if ((await Artifact.countDocuments({ ...its, status: 'creating' })) >= openAtMost)
    throw new Problem(
      409,
      'too_many_uploads',
      'Too many artifacts on their way',
      `${openAtMost} artifacts of the deploy server are on their way`,
    )
  const useless = [
    { status: { $in: ['failed', 'cancelled', 'error'] as const } },
    { superseded: true as const },
  ]
  const old = await Artifact.find({ ...its, operation_id: null, $or: useless }, { _id: 1 })
    .sort({ created_at: -1 })
    .skip(keptRecords - 1)
    .limit(atOnce)
    .lean()
  for (const { _id } of old) {
    await dropArchive(_id)
    await Operation.deleteOne({ resource_id: _id, tenant_id: its.tenant_id })
    await Artifact.deleteOne({ _id, tenant_id: its.tenant_id })
  }
}

/** Notes which versions of the folder have left the worker, as it does when another one is there. */
artifactResource.comesToRest = async ({ _id, tenant_id, ended }) => {
  const artifact = ended === 'succeeded' ? await Artifact.findOne({ _id, tenant_id }).lean() : null
  if (!artifact) return
  const { deploy_server_id, folder } = artifact
  const its = { tenant_id, deploy_server_id, folder, status: 'ready' as const }
  const older = await Artifact.find({ ...its, superseded: { $ne: true } }, { _id: 1 })
    .sort({ _id: -1 })
    .skip(keptVersions)
    .limit(atOnce)
    .lean()
  const ids = older.map((one) => one._id)
  await Artifact.updateMany({ _id: { $in: ids }, tenant_id }, { $set: { superseded: true } })
}

/** Accepts an archive for the folder. Throws NotFound, StateConflict before the deploy server is ready, `too_many_uploads`. */
export async function acceptArtifact(
  by: By,
  deployServerId: string,
  { folder, archive }: { folder: string; archive: Buffer },
): Promise<Accepted<ArtifactDocument>> {
  const { tenant_id } = by
  const { status } = await mine(deployServerResource, by, deployServerId)
  if (status === 'creating') throw new StateConflict('push an artifact', status)
  const blob = await storeBlob(archive)
  const sha256 = createHash('sha256').update(archive).digest('hex')
  try {
    return await transaction(async () => {
      await lockParent(deployServerResource, tenant_id, deployServerId)
      await makeRoom({ tenant_id, deploy_server_id: deployServerId })
      await keepBlob(blob)
      return create(by, artifactResource, {
        fields: {
          name: `${folder.slice(0, 50)}-${blob.key.slice(-12)}`,
          deploy_server_id: deployServerId,
          folder,
          sha256,
          size_bytes: archive.length,
          blob,
          ...untouched,
        },
      })
    }, tenant_id)
  } catch (error) {
    await dropUnkept(blob)
    throw error
  }
}

/** The artifact of this deploy server of the caller's tenant. Throws NotFound. */
export async function artifactOf(
  caller: { tenant_id: string },
  deployServerId: string,
  id: string,
): Promise<ArtifactDocument> {
  const artifact = await mine(artifactResource, caller, id)
  if (artifact.deploy_server_id !== deployServerId) throw new NotFound('artifact')
  return artifact
}

/** The archive of an artifact that is on its way. Throws NotFound. */
export async function archiveOf(deployServerId: string, _id: string): Promise<Buffer> {
  const artifact = await Artifact.findOne({ _id, deploy_server_id: deployServerId })
    .setOptions(everyTenant)
    .lean()
  if (!artifact?.blob) throw new NotFound('artifact')
  return readBlob(artifact.blob)
}

/** Removes the archive, when it is unpacked or refused. Idempotent. */
export async function dropArchive(_id: string): Promise<void> {
  const artifact = await Artifact.findById(_id).setOptions(everyTenant).lean()
  const { blob, tenant_id } = artifact ?? {}
  if (!blob || !tenant_id) return
  await transaction(async () => {
    const { modifiedCount } = await Artifact.updateOne(
      { _id, tenant_id, 'blob.key': blob.key },
      { $set: { blob: null } },
    )
    if (modifiedCount) await dropBlobs([blob])
  }, _id)
}

/** Removes the records of a deploy server's artifacts. */
export async function forgetArtifacts(tenant_id: string, deploy_server_id: string): Promise<void> {
  for (const { _id } of await Artifact.find({ tenant_id, deploy_server_id }, { _id: 1 }).lean()) {
    await dropArchive(_id)
    await transaction(() => Artifact.deleteOne({ _id, tenant_id }), tenant_id)
  }
}
