import mongoose, { Schema } from 'mongoose'
import { transaction } from '../database.ts'
import { fits, type Size, takeQuota } from '../identity/tenants.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { Host, type HostDocument } from './hosts.ts'

/**
 * What one instance holds of its tenant's quota and, once placed, of a host. The one record from which both
 * sums can be made again; it and they change together or not at all.
 */
export interface ReservationDocument {
  /** The instance's id: an instance holds once, however often it asks. */
  _id: string
  tenant_id: string
  cpu_milli: number
  memory_mib: number
  host_id: string | null
}

const schema = new Schema<ReservationDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    cpu_milli: { type: Number, required: true },
    memory_mib: { type: Number, required: true },
    host_id: { type: String, default: null },
  },
  { versionKey: false, id: false, collection: 'reservations' },
)
tenantScoped(schema)
schema.index({ host_id: 1 })
schema.index({ tenant_id: 1 })
export const Reservation = mongoose.model<ReservationDocument>('Reservation', schema)

// Placements meet in the sums of a few hosts.
const turn = 'reservations'

/** No host has room, or none is there. */
export class NoCapacity extends Error {
  override readonly name = 'NoCapacity'
  readonly code = 'no_capacity'
  readonly permanent = true
}

/** Takes quota for an instance. It may hold some already: then the size becomes this. Throws QuotaExceeded, NoCapacity. */
export const reserve = (instanceId: string, tenantId: string, size: Size): Promise<void> =>
  hold(instanceId, tenantId, size, true)

/** Changes what an instance holds; one that holds nothing goes on holding nothing. Throws as `reserve`. */
export const resize = (instanceId: string, tenantId: string, size: Size): Promise<void> =>
  hold(instanceId, tenantId, size, false)

async function hold(instanceId: string, tenantId: string, size: Size, upsert: boolean): Promise<void> {
  await transaction(async () => {
    const held = await Reservation.findOneAndUpdate(
      { _id: instanceId, tenant_id: tenantId },
      { $set: size },
      { upsert, returnDocument: 'before' },
    ).lean()
    if (!held && !upsert) return
    const more = difference(size, held)
    if (more.cpu_milli === 0 && more.memory_mib === 0) return
    await takeQuota(tenantId, more, { isNew: !held })
    if (held?.host_id && !(await takeRoom(held.host_id, more))) throw new NoCapacity(explain(1, more))
  }, tenantId)
}

/**
 * Finds a host with room for an instance and takes the room: the host it is on already, else the one with
 * the most free memory. Throws NoCapacity.
 */
export async function place(instanceId: string, wantedHostId: string | null): Promise<HostDocument> {
  const wanted = wantedHostId ? { _id: wantedHostId } : {}
  const [held, hosts] = await Promise.all([
    Reservation.findOne({ _id: instanceId }).setOptions(everyTenant).lean(),
    Host.find({ status: 'active', cordoned: false, ...wanted }).lean(),
  ])
  if (!held) throw new Error(`instance ${instanceId} holds no reservation`)
  if (held.host_id) return hostOf(held.host_id)
  const free = (host: (typeof hosts)[number]) => (host.capacity?.memory_mib ?? 0) - host.reserved.memory_mib
  return transaction(async () => {
    for (const host of hosts.toSorted((a, b) => free(b) - free(a))) {
      // What was read above may have changed: these two conditions decide.
      if (!(await takeRoom(host._id, held))) continue
      const { cpu_milli, memory_mib, tenant_id } = held
      const unplaced = { _id: instanceId, tenant_id, cpu_milli, memory_mib, host_id: null }
      const placed = await Reservation.updateOne(unplaced, { $set: { host_id: host._id } })
      if (placed.matchedCount === 0) throw new Error(`the reservation of ${instanceId} changed meanwhile`)
      return host
    }
    throw new NoCapacity(explain(hosts.length, held))
  }, turn)
}

async function hostOf(id: string): Promise<HostDocument> {
  const host = await Host.findById(id).lean()
  if (!host) throw new Error(`host ${id} is gone, with instances on it`)
  return host
}

/** Gives back all that an instance holds. Nothing held is success. */
export async function release(instanceId: string): Promise<void> {
  await transaction(async () => {
    const held = await Reservation.findOneAndDelete({ _id: instanceId }).setOptions(everyTenant).lean()
    if (!held) return
    const back = { cpu_milli: -held.cpu_milli, memory_mib: -held.memory_mib }
    await takeQuota(held.tenant_id, back)
    if (held.host_id) await takeRoom(held.host_id, back)
  }, turn)
}

/** One conditional update: whether there was room, and it is taken now. */
async function takeRoom(hostId: string, { cpu_milli, memory_mib }: Size): Promise<boolean> {
  const taken = await Host.updateOne(
    {
      _id: hostId,
      $expr: {
        $and: [
          fits(cpu_milli, '$reserved.cpu_milli', { $multiply: ['$capacity.cpu_cores', 1000] }),
          fits(memory_mib, '$reserved.memory_mib', '$capacity.memory_mib'),
        ],
      },
    },
    { $inc: { 'reserved.cpu_milli': cpu_milli, 'reserved.memory_mib': memory_mib } },
  )
  return taken.matchedCount === 1
}

const difference = (size: Size, held: Size | null): Size => ({
  cpu_milli: size.cpu_milli - (held?.cpu_milli ?? 0),
  memory_mib: size.memory_mib - (held?.memory_mib ?? 0),
})

const explain = (hosts: number, { cpu_milli, memory_mib }: Size): string =>
  hosts === 0
    ? 'No host takes new instances'
    : `No host has ${cpu_milli / 1000} cpu cores and ${memory_mib} MiB of memory free`
