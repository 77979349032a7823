import mongoose, { Schema } from 'mongoose'
import { NotFound, OperationInProgress, Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { diskSize, fits, type Size, takeQuota } from '../identity/tenants.ts'
import { schemaOptions } from '../schemas.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { Host, type HostDocument } from './hosts.ts'
import { noteFormerHost } from './log-archive.ts'

/**
 * What one instance, disk or replica of a load balancer reserves of its tenant's quota and, once placed, of a host. The
 * two sums can be recomputed from these records. A record and the sums change in one transaction.
 */
export interface ReservationDocument extends Size {
  /** The id of what reserves: each has one reservation, so reserving is idempotent. */
  _id: string
  /** The instance, disk or load balancer, as hosts know it. Replicas of one load balancer have the same owner. */
  owner_id: string
  tenant_id: string
  host_id: string | null
  /** During a move: the target host, which has the same size reserved. */
  target_host_id: string | null
}

const schema = new Schema<ReservationDocument>(
  {
    _id: { type: String, required: true },
    owner_id: { type: String, required: true },
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
// Each host report looks up the reservations on that host by these two.
schema.index({ host_id: 1 })
schema.index({ target_host_id: 1 })
schema.index({ tenant_id: 1 })
schema.index({ owner_id: 1 })
export const Reservation = mongoose.model<ReservationDocument>('Reservation', schema)

/** Placements run one after another in each process: they write the sums of the same few hosts. */
export const placementTurn = 'reservations'

/** No host has room, or there is no host. */
export class NoCapacity extends Error {
  override readonly name = 'NoCapacity'
  readonly code = 'no_capacity'
  readonly permanent: boolean

  /** `mayChange`: room is expected in a moment, so that an operation that needs it tries again. */
  constructor(message: string, { mayChange = false } = {}) {
    super(message)
    this.permanent = !mayChange
  }
}

/** Reserves quota for an instance, or changes its reservation to this size. Throws QuotaExceeded, NoCapacity. */
export const reserve = (
  instanceId: string,
  tenantId: string,
  size: Size,
  { ownerId = instanceId } = {},
): Promise<void> => hold(instanceId, tenantId, size, { owner_id: ownerId })

/** Reserves this size beside what is reserved already: the larger of both for each amount. Throws as `reserve`. */
export const reserveAlso = (instanceId: string, tenantId: string, asked: Size): Promise<void> =>
  transaction(async () => reserve(instanceId, tenantId, largest(asked, await heldBy(instanceId))), tenantId)

/**
 * As `reserveAlso`, but returns false and reserves nothing if the host has no room: it may have given the room to
 * others. Throws QuotaExceeded.
 */
export async function reserveIfRoom(instanceId: string, tenantId: string, asked: Size): Promise<boolean> {
  return transaction(async () => {
    const held = await heldBy(instanceId)
    const size = largest(asked, held)
    const more = difference(size, held)
    for (const hostId of hostsOf(held)) {
      // A check only: `reserve` takes the room.
      if (!(await takeRoom(hostId, more))) return false
      await giveBack(hostId, more)
    }
    await reserve(instanceId, tenantId, size)
    return true
  }, tenantId)
}

/** How much a reservation falls short of this size. */
export const beyond = (size: Size, held: Size): Size =>
  combined((amount) => Math.max(0, size[amount] - held[amount]))

/** Changes the size of a reservation. Does nothing if there is none. Throws as `reserve`. */
export const resize = (instanceId: string, tenantId: string, size: Size): Promise<void> =>
  hold(instanceId, tenantId, size, null)

/** Releases what an instance reserves beyond this size. It never takes more, so it cannot fail for lack of room. */
export async function shrink(instanceId: string, tenantId: string, size: Size): Promise<void> {
  await transaction(async () => {
    const held = await Reservation.findOne({ _id: instanceId, tenant_id: tenantId }).lean()
    if (!held) return
    const less = combined((amount) => Math.min(held[amount], size[amount]))
    if (amounts.some((amount) => less[amount] !== held[amount])) await resize(instanceId, tenantId, less)
  }, tenantId)
}

/** `made`: what a new reservation has beside its size; null makes none. */
async function hold(
  instanceId: string,
  tenantId: string,
  size: Size,
  made: Pick<ReservationDocument, 'owner_id'> | null,
): Promise<void> {
  await transaction(async () => {
    const held = await Reservation.findOneAndUpdate(
      { _id: instanceId, tenant_id: tenantId },
      { $set: size, ...(made ? { $setOnInsert: made } : {}) },
      { upsert: made !== null, returnDocument: 'before' },
    ).lean()
    if (!held && !made) return
    const more = difference(size, held)
    if (amounts.every((amount) => more[amount] === 0)) return
    await takeQuota(tenantId, more, { isNew: !held })
    for (const hostId of held ? hostsOf(held) : []) {
      if (await takeRoom(hostId, more)) continue
      const host = await Host.findById(hostId).lean()
      const short = host ? shortOf(host, more).join(', ') : ''
      throw new NoCapacity(`${lacking(more, 'Its host does not have')}${short && ` (too little: ${short})`}`)
    }
  }, tenantId)
}

/** Ends the moves of these at the target, and releases the room on the source host. */
export const arrive = (...ids: string[]): Promise<void> =>
  giveUp(ids, ({ host_id, target_host_id }) =>
    target_host_id ? { left: host_id, now: { host_id: target_host_id, target_host_id: null } } : null,
  )

/** Ends the moves of these at the source, and releases the room on the target host. */
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
      await noteFormerHost(held.owner_id, held.tenant_id, move.left)
    }
  }, placementTurn)
}

/** The hosts of a reservation: one, or two during a move. */
export const hostsOf = ({
  host_id,
  target_host_id,
}: Pick<ReservationDocument, 'host_id' | 'target_host_id'>): string[] =>
  [host_id, target_host_id].filter((id) => id !== null)

/** The reservation of an instance or a disk. Throws if there is none. */
export async function heldBy(instanceId: string): Promise<ReservationDocument> {
  const held = await Reservation.findOne({ _id: instanceId }).setOptions(everyTenant).lean()
  if (!held) throw new Error(`${instanceId} holds no reservation`)
  return held
}

/** The tenants of those of these instances, disks and load balancers that have a reservation on the host. */
export async function ownersOn(hostId: string, ids: string[]): Promise<Map<string, string>> {
  const here = await Reservation.find(
    { owner_id: { $in: ids }, $or: [{ host_id: hostId }, { target_host_id: hostId }] },
    { owner_id: 1, tenant_id: 1 },
  )
    .setOptions(everyTenant)
    .lean()
  return new Map(here.map(({ owner_id, tenant_id }) => [owner_id, tenant_id]))
}

/** The others of these: they moved away or were deleted. */
export async function strangersOn(hostId: string, ids: string[]): Promise<string[]> {
  const known = await ownersOn(hostId, ids)
  return ids.filter((id) => !known.has(id))
}

/** Releases the reservation of an instance. Succeeds if there is none. */
export async function release(instanceId: string): Promise<void> {
  await transaction(async () => {
    const held = await Reservation.findOneAndDelete({ _id: instanceId }).setOptions(everyTenant).lean()
    if (!held) return
    await takeQuota(held.tenant_id, negative(held))
    for (const hostId of hostsOf(held)) await giveBack(hostId, held)
  }, placementTurn)
}

/** Takes room on a host in one conditional update. False if the host lacks it or does not match `condition`. */
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

/** The capacity of a host for each amount, as aggregation expressions. */
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
const largest = (one: Size, other: Size): Size => combined((amount) => Math.max(one[amount], other[amount]))
const difference = (size: Size, held: Size | null): Size =>
  combined((amount) => size[amount] - (held?.[amount] ?? 0))
const negative = (size: Size): Size => difference(diskSize(0), size)
export const sumOf = (sizes: Size[]): Size =>
  combined((amount) => sizes.reduce((sum, size) => sum + size[amount], 0))

export function lacking({ cpu_milli, memory_mib, disk_gib }: Size, who = 'No host has'): string {
  const parts = [
    ...(cpu_milli || memory_mib ? [`${cpu_milli / 1000} cpu cores and ${memory_mib} MiB of memory`] : []),
    ...(disk_gib ? [`${disk_gib} GiB of disk`] : []),
  ]
  return `${who} ${parts.join(' and ')} free`
}

/** What of a size a host has not free. */
export function shortOf(
  { capacity, reserved }: Pick<HostDocument, 'capacity' | 'reserved'>,
  size: Size,
): string[] {
  const room = {
    cpu_milli: (capacity?.cpu_cores ?? 0) * 1000,
    memory_mib: capacity?.memory_mib ?? 0,
    disk_gib: capacity?.disk_gib ?? 0,
  }
  const isShort = (amount: keyof Size) => size[amount] > 0 && reserved[amount] + size[amount] > room[amount]
  return amounts.filter(isShort).map((amount) => amountNames[amount])
}
const amountNames: Record<keyof Size, string> = { cpu_milli: 'CPU', memory_mib: 'memory', disk_gib: 'disk' }

/**
 * Removes an empty host, and so revokes its key. A concurrent placement finds no room on it. Throws NotFound,
 * OperationInProgress and `host_in_use`.
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
