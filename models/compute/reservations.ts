import mongoose, { Schema } from 'mongoose'
import { NotFound, OperationInProgress, Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { diskSize, fits, type Size, takeQuota } from '../identity/tenants.ts'
import { schemaOptions } from '../schemas.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { Host, type HostDocument } from './hosts.ts'
import { noteFormerHost } from './log-archive.ts'

/**
 * What one instance or disk holds of its tenant's quota and, once placed, of a host. The one record from which both
 * sums can be made again; it and they change together or not at all.
 */
export interface ReservationDocument extends Size {
  /** The holder's id: it holds once, however often it asks. */
  _id: string
  tenant_id: string
  host_id: string | null
  /** While it moves: the host it goes to, where it holds the same. */
  target_host_id: string | null
}

const schema = new Schema<ReservationDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    cpu_milli: { type: Number, required: true },
    memory_mib: { type: Number, required: true },
    disk_gib: { type: Number, default: 0 },
    host_id: { type: String, default: null },
    target_host_id: { type: String, default: null },
  },
  { ...schemaOptions, collection: 'reservations' },
)
tenantScoped(schema)
// With both, what is on a host is found without reading what is on all others, as each report asks.
schema.index({ host_id: 1 })
schema.index({ target_host_id: 1 })
schema.index({ tenant_id: 1 })
export const Reservation = mongoose.model<ReservationDocument>('Reservation', schema)

/** Placements meet in the sums of a few hosts. */
export const placementTurn = 'reservations'

/** No host has room, or none is there. */
export class NoCapacity extends Error {
  override readonly name = 'NoCapacity'
  readonly code = 'no_capacity'
  readonly permanent = true
}

/** Takes quota for an instance. It may hold some already: then the size becomes this. Throws QuotaExceeded, NoCapacity. */
export const reserve = (instanceId: string, tenantId: string, size: Size): Promise<void> =>
  hold(instanceId, tenantId, size, true)

/**
 * As `reserve`, for one whose host may have given its room to others: false, and nothing is taken, where that has too
 * little. Throws QuotaExceeded.
 */
export async function reserveIfRoom(instanceId: string, tenantId: string, size: Size): Promise<boolean> {
  return transaction(async () => {
    const held = await heldBy(instanceId)
    const more = difference(size, held)
    for (const hostId of hostsOf(held)) {
      // Only looked for: `reserve` takes it.
      if (!(await takeRoom(hostId, more))) return false
      await giveBack(hostId, more)
    }
    await reserve(instanceId, tenantId, size)
    return true
  }, tenantId)
}

/** What a holder lacks to hold as much as this. */
export const beyond = (size: Size, held: Size): Size =>
  combined((amount) => Math.max(0, size[amount] - held[amount]))

/** Changes what an instance holds; one that holds nothing goes on holding nothing. Throws as `reserve`. */
export const resize = (instanceId: string, tenantId: string, size: Size): Promise<void> =>
  hold(instanceId, tenantId, size, false)

/** Gives back what an instance holds beyond this size; it takes nothing, and so never fails for want of room. */
export async function shrink(instanceId: string, tenantId: string, size: Size): Promise<void> {
  await transaction(async () => {
    const held = await Reservation.findOne({ _id: instanceId, tenant_id: tenantId }).lean()
    if (!held) return
    const less = combined((amount) => Math.min(held[amount], size[amount]))
    if (amounts.some((amount) => less[amount] !== held[amount])) await resize(instanceId, tenantId, less)
  }, tenantId)
}

async function hold(instanceId: string, tenantId: string, size: Size, upsert: boolean): Promise<void> {
  await transaction(async () => {
    const held = await Reservation.findOneAndUpdate(
      { _id: instanceId, tenant_id: tenantId },
      { $set: size },
      { upsert, returnDocument: 'before' },
    ).lean()
    if (!held && !upsert) return
    const more = difference(size, held)
    if (amounts.every((amount) => more[amount] === 0)) return
    await takeQuota(tenantId, more, { isNew: !held })
    for (const hostId of held ? hostsOf(held) : []) {
      if (!(await takeRoom(hostId, more))) throw new NoCapacity(lacking(more))
    }
  }, tenantId)
}

/** They are where they were to go; what they held where they were is given back. */
export const arrive = (...ids: string[]): Promise<void> =>
  giveUp(ids, ({ host_id, target_host_id }) =>
    target_host_id ? { left: host_id, now: { host_id: target_host_id, target_host_id: null } } : null,
  )

/** They stay where they are; what they held elsewhere is given back. */
export const stay = (...ids: string[]): Promise<void> =>
  giveUp(ids, ({ target_host_id }) =>
    target_host_id ? { left: target_host_id, now: { target_host_id: null } } : null,
  )

type Move = { left: string | null; now: Partial<ReservationDocument> }

async function giveUp(ids: string[], moveOf: (held: ReservationDocument) => Move | null): Promise<void> {
  await transaction(async () => {
    const all = await Reservation.find({ _id: { $in: ids } })
      .setOptions(everyTenant)
      .lean()
    for (const held of all) {
      const move = moveOf(held)
      if (!move) continue
      await Reservation.updateOne({ _id: held._id, tenant_id: held.tenant_id }, { $set: move.now })
      if (!move.left) continue
      await giveBack(move.left, held)
      await noteFormerHost(held._id, held.tenant_id, move.left)
    }
  }, placementTurn)
}

/** Where it holds room: one host, or two while it moves. */
export const hostsOf = ({
  host_id,
  target_host_id,
}: Pick<ReservationDocument, 'host_id' | 'target_host_id'>): string[] =>
  [host_id, target_host_id].filter((id) => id !== null)

/** What an instance or a disk holds, which must be something. */
export async function heldBy(instanceId: string): Promise<ReservationDocument> {
  const held = await Reservation.findOne({ _id: instanceId }).setOptions(everyTenant).lean()
  if (!held) throw new Error(`${instanceId} holds no reservation`)
  return held
}

/** Those of these instances that hold nothing of the host, though they are there: moved away, or deleted. */
export async function strangersOn(hostId: string, instanceIds: string[]): Promise<string[]> {
  const here = await Reservation.find(
    { _id: { $in: instanceIds }, $or: [{ host_id: hostId }, { target_host_id: hostId }] },
    { _id: 1 },
  )
    .setOptions(everyTenant)
    .lean()
  const known = new Set(here.map(({ _id }) => _id))
  return instanceIds.filter((id) => !known.has(id))
}

/** Gives back all that an instance holds. Nothing held is success. */
export async function release(instanceId: string): Promise<void> {
  await transaction(async () => {
    const held = await Reservation.findOneAndDelete({ _id: instanceId }).setOptions(everyTenant).lean()
    if (!held) return
    await takeQuota(held.tenant_id, negative(held))
    for (const hostId of hostsOf(held)) await giveBack(hostId, held)
  }, placementTurn)
}

/** One conditional update: whether there was room, and `condition` held, and it is taken now. Nothing is written for nothing. */
export async function takeRoom(
  hostId: string,
  size: Size,
  condition: Partial<Pick<HostDocument, 'status' | 'cordoned'>> = {},
): Promise<boolean> {
  const changed = amounts.filter((amount) => size[amount] !== 0)
  if (changed.length === 0 && Object.keys(condition).length === 0) return true
  const room = changed.map((amount) => fits(size[amount], `$reserved.${amount}`, capacities[amount]))
  const more = changed.map((amount) => [`reserved.${amount}`, size[amount]] as const)
  const taken = await Host.updateOne(
    { _id: hostId, ...condition, $expr: { $and: room } },
    changed.length ? { $inc: Object.fromEntries(more) } : {},
  )
  return taken.matchedCount === 1
}

export const giveBack = (hostId: string, size: Size): Promise<boolean> => takeRoom(hostId, negative(size))

/** What a host has of each. */
const capacities = {
  cpu_milli: { $multiply: ['$capacity.cpu_cores', 1000] },
  memory_mib: '$capacity.memory_mib',
  disk_gib: '$capacity.disk_gib',
}
const amounts = Object.keys(capacities) as (keyof Size)[]

const combined = (of: (amount: keyof Size) => number): Size => ({
  cpu_milli: of('cpu_milli'),
  memory_mib: of('memory_mib'),
  disk_gib: of('disk_gib'),
})
const difference = (size: Size, held: Size | null): Size =>
  combined((amount) => size[amount] - (held?.[amount] ?? 0))
const negative = (size: Size): Size => difference(diskSize(0), size)
export const sumOf = (sizes: Size[]): Size =>
  combined((amount) => sizes.reduce((sum, size) => sum + size[amount], 0))

export function lacking({ cpu_milli, memory_mib, disk_gib }: Size): string {
  const parts = [
    ...(cpu_milli || memory_mib ? [`${cpu_milli / 1000} cpu cores and ${memory_mib} MiB of memory`] : []),
    ...(disk_gib ? [`${disk_gib} GiB of disk`] : []),
  ]
  return `No host has ${parts.join(' and ')} free`
}

/**
 * Removes a host that nothing is on: its key is good no longer. Throws NotFound and `host_in_use`; whoever places
 * something on it meanwhile finds no room there.
 */
export async function deleteHost(id: string): Promise<void> {
  await transaction(async () => {
    const host = await Host.findOneAndDelete({ _id: id, operation_id: null }).lean()
    if (!host) {
      const busy = await Host.findById(id).lean()
      throw busy?.operation_id ? new OperationInProgress(busy.operation_id) : new NotFound('host')
    }
    const here = { $or: [{ host_id: id }, { target_host_id: id }] }
    const instances = await Reservation.countDocuments(here).setOptions(everyTenant)
    if (instances === 0) return
    throw new Problem(409, 'host_in_use', 'The host is in use', `${instances} instances are on the host`, {
      extensions: { instances },
    })
  }, placementTurn)
}
