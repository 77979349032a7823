import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { NotFound, StateConflict } from '../../lib/problem.ts'
import { sealPart, unsealPart } from '../../lib/backup-protocol.ts'
import type { SwarmPiecePlace } from '../../lib/deploy-protocol.ts'
import { type BlobName, dropBlobs, dropUnkept, keepBlob, readBlob, storeBlob } from '../blobs.ts'
import { transaction } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { DeployServer, type DeployServerDocument } from './deploy-servers.ts'
import { machinesOn } from './machine-places.ts'

/**
 * A copy of what the control plane knows of its Swarm, in sealed pieces: each adds to those before it. A new control plane goes
 * on with the newest copy that is whole.
 */
interface SwarmCopyDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  /** The machine whose copy it is. */
  machine_id: string
  key_sealed: string
  pieces: BlobName[]
  /** How many of the pieces, from the first, can be used. The others are a part of what has been added. */
  whole: number
  created_at: Date
  updated_at: Date
}

const schema = new Schema<SwarmCopyDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    machine_id: { type: String, required: true },
    key_sealed: { type: String, required: true },
    pieces: { type: Schema.Types.Mixed, required: true },
    whole: { type: Number, default: 0 },
  },
  { ...documentOptions, collection: 'swarm_copies' },
)
tenantScoped(schema)
schema.index({ deploy_server_id: 1, created_at: -1 })
export const SwarmCopy = mongoose.model<SwarmCopyDocument>('SwarmCopy', schema)

const contextOf = (id: string): string => `swarm_copies.key:${id}`
sealedField(SwarmCopy, 'key_sealed', ({ _id }) => contextOf(_id))

/** The control planes on a host. */
export async function controlPlanesOn(
  hostId: string,
): Promise<{ deploy_server_id: string; machine_id: string }[]> {
  const machines = await machinesOn(hostId)
  if (machines.size === 0) return []
  const servers = await DeployServer.find({ _id: { $in: [...new Set(machines.values())] } }, { nodes: 1 })
    .setOptions(everyTenant)
    .lean()
  return servers.flatMap(({ _id, nodes }) => {
    const cp = nodes.find(({ name }) => name === 'cp')
    return cp?.registered && cp.machine_id && machines.has(cp.machine_id)
      ? [{ deploy_server_id: _id, machine_id: cp.machine_id }]
      : []
  })
}

/**
 * Adds a piece to a copy, which begins with the piece 0. The first that makes it whole removes older copies. Throws NotFound if
 * the machine is not the control plane any more, and StateConflict if the piece does not follow on the last one.
 */
export async function keepSwarmPiece(
  server: Pick<DeployServerDocument, '_id' | 'tenant_id' | 'nodes'>,
  _id: string,
  { machine_id, index, whole }: SwarmPiecePlace,
  bytes: Buffer,
): Promise<void> {
  const { _id: deploy_server_id, tenant_id } = server
  if (server.nodes.find(({ name }) => name === 'cp')?.machine_id !== machine_id)
    throw new NotFound('control plane')
  const of = { _id, tenant_id, deploy_server_id, machine_id }
  if (index === 0) await begin(of)
  const copy = await SwarmCopy.findOne(of).lean()
  if (copy?.pieces.length !== index) throw new StateConflict('add the piece', 'another one is due')
  const sealed = Buffer.concat(sealPart(await keyOf(copy), _id, index, [bytes]))
  const blob = await storeBlob(sealed)
  try {
    await transaction(async () => {
      // Its deletion has removed the copies, or will do so.
      if (!(await DeployServer.exists({ _id: deploy_server_id, tenant_id, status: { $ne: 'deleting' } })))
        throw new NotFound('deploy server')
      const { matchedCount } = await SwarmCopy.updateOne(
        { ...of, pieces: { $size: index } },
        { $push: { pieces: blob }, ...(whole ? { $set: { whole: index + 1 } } : {}) },
      )
      if (matchedCount === 0) throw new StateConflict('add the piece', 'another one is due')
      await keepBlob(blob)
      if (whole) await removeCopies({ tenant_id, deploy_server_id, _id: { $ne: _id } })
    }, deploy_server_id)
  } catch (error) {
    await dropUnkept(blob)
    throw error
  }
}

async function begin(of: Pick<SwarmCopyDocument, '_id' | 'tenant_id' | 'deploy_server_id' | 'machine_id'>) {
  const key_sealed = await sealSecret(randomBytes(32).toString('base64'), contextOf(of._id))
  await SwarmCopy.updateOne(of, { $setOnInsert: { key_sealed, pieces: [], whole: 0 } }, { upsert: true })
}

const keyOf = ({ _id, key_sealed }: SwarmCopyDocument): Promise<string> =>
  unsealSecret<string>(key_sealed, contextOf(_id))

/** The newest copy that is whole, piece by piece; null if there is none. */
export async function swarmCopyOf({
  _id: deploy_server_id,
  tenant_id,
}: Pick<DeployServerDocument, '_id' | 'tenant_id'>): Promise<AsyncGenerator<Buffer> | null> {
  const copy = await SwarmCopy.findOne({ deploy_server_id, tenant_id, whole: { $gt: 0 } })
    .sort({ created_at: -1 })
    .lean()
  return copy && opened(copy)
}

async function* opened(copy: SwarmCopyDocument): AsyncGenerator<Buffer> {
  const key = await keyOf(copy)
  for (const [index, blob] of copy.pieces.slice(0, copy.whole).entries())
    yield* unsealPart(key, copy._id, index, [await readBlob(blob)])
}

/** Removes the copies of a deploy server. Idempotent. */
export const forgetSwarmCopies = (tenant_id: string, deploy_server_id: string): Promise<void> =>
  transaction(() => removeCopies({ tenant_id, deploy_server_id }), deploy_server_id)

async function removeCopies(
  of: Pick<SwarmCopyDocument, 'tenant_id' | 'deploy_server_id'> & { _id?: { $ne: string } },
): Promise<void> {
  const copies = await SwarmCopy.find(of, { pieces: 1 }).lean()
  await dropBlobs(copies.flatMap(({ pieces }) => pieces))
  await SwarmCopy.deleteMany({ _id: { $in: copies.map(({ _id }) => _id) }, tenant_id: of.tenant_id })
}
