import mongoose, { Schema } from 'mongoose'
import { Problem } from '../../lib/problem.ts'
import { documentOptions } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { releaseNics, takePathNic } from './nics.ts'

// A path leads one instance to one port of one address in another VPC of its tenant, such as that of a database of a deploy
// server. It is on the host of its instance, and follows it.

/** Where a path leads. */
export interface PathTarget {
  subnet_id: string
  ip_address: string
  port: number
}

export interface PathDocument {
  /** The id of what it was made for. */
  _id: string
  tenant_id: string
  instance_id: string
  /** The NIC through which its instance uses it. */
  nic_id: string
  /** In the subnet of that NIC: where the instance finds the target. Nothing else is at this address. */
  ip_address: string
  /** The port of `ip_address`. */
  port: number
  target: PathTarget
  /** False while it is being removed: no host has it, and its addresses are still taken. */
  wanted: boolean
  /** Whether the target takes connections, as its host last found. Null: not known. */
  reachable: boolean | null
  /** Since when it is so. */
  reachable_since: Date | null
  created_at: Date
  updated_at: Date
}

const schema = new Schema<PathDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    instance_id: { type: String, required: true },
    nic_id: { type: String, required: true },
    ip_address: { type: String, required: true },
    port: { type: Number, required: true },
    target: { type: Schema.Types.Mixed, required: true },
    wanted: { type: Boolean, default: true },
    reachable: { type: Boolean, default: null },
    reachable_since: { type: Date, default: null },
  },
  { ...documentOptions, collection: 'paths' },
)
tenantScoped(schema)
schema.index({ instance_id: 1 })
export const Path = mongoose.model<PathDocument>('Path', schema)

interface NewPath extends Pick<PathDocument, '_id' | 'tenant_id' | 'instance_id' | 'port' | 'target'> {
  /** The NIC through which the instance uses it. */
  nic: { id: string; subnet_id: string; ip_address: string }
}

/**
 * Makes the record of a path with an address in both subnets, in the transaction that accepts it. Throws NotFound (a
 * subnet) and `subnet_full`.
 */
export async function takePath({ nic, ...path }: NewPath): Promise<PathDocument> {
  const { _id: id, tenant_id, target } = path
  // No address may be one at the other end: the path could not tell the two apart.
  const near = await takePathNic({ id, tenant_id }, nic.subnet_id, [target.ip_address])
  await takePathNic({ id, tenant_id }, target.subnet_id, [nic.ip_address])
  const made = await new Path({ ...path, nic_id: nic.id, ip_address: near.ip_address }).save()
  return made.toObject()
}

/** Throws 409 for a NIC through which its instance uses a path. */
export async function needNoPath({ tenant_id }: { tenant_id: string }, nic_id: string): Promise<void> {
  if (!(await Path.exists({ tenant_id, nic_id }))) return
  const detail = 'An attached database is reached through the NIC: detach the database first'
  throw new Problem(409, 'nic_in_use', 'The NIC is in use', detail)
}

/** Has no host have it. Its addresses stay taken until it is released. */
export async function unwantPath(id: string): Promise<void> {
  await Path.updateOne({ _id: id }, { $set: { wanted: false } }).setOptions(everyTenant)
}

/** Deletes a path that no host has, and frees its addresses. Idempotent. */
export async function releasePath(id: string): Promise<void> {
  await Path.deleteOne({ _id: id }).setOptions(everyTenant)
  await releaseNics(id)
}

/** Has it lead elsewhere, if its target has moved. */
export async function leadPath(id: string, target: PathTarget): Promise<void> {
  await Path.updateOne({ _id: id }, { $set: { target } }).setOptions(everyTenant)
}

/** The ids of an instance's paths. */
export const pathsOf = (instanceId: string): Promise<string[]> =>
  Path.distinct('_id', { instance_id: instanceId }).setOptions(everyTenant)

/** Records whether the targets of paths on a host take connections. */
export async function recordReachable(seen: { id: string; reachable: boolean }[]): Promise<void> {
  for (const reachable of [true, false]) {
    const ids = seen.filter((one) => one.reachable === reachable).map(({ id }) => id)
    if (ids.length === 0) continue
    await Path.updateMany(
      { _id: { $in: ids }, reachable: { $ne: reachable } },
      { $set: { reachable, reachable_since: new Date() } },
      { timestamps: false },
    ).setOptions(everyTenant)
  }
}
