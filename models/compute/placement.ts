import { transaction } from '../database.ts'
import type { InstanceKindName } from '../../lib/host-protocol.ts'
import type { Size } from '../identity/tenants.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Host, type HostDocument } from './hosts.ts'
import {
  beyond,
  giveBack,
  heldBy,
  hostsOf,
  lacking,
  NoCapacity,
  placementTurn,
  Reservation,
  type ReservationDocument,
  sumOf,
  takeRoom,
} from './reservations.ts'

// Which host an instance or a disk goes to.

/** Which hosts an instance may go to, and which it should. */
export interface Wish {
  /** What is to run there; a disk is kept anywhere. */
  kind?: InstanceKindName
  /** An operator's choice: this one or none. */
  hostId?: string | null
  /** Instances that it should not meet: hosts with fewer of them come first. */
  apartFrom?: string[]
  /** What the first is to hold once it runs there: a host must have it free, though it is not taken yet. */
  toRun?: Size
  /** Its memory goes along: only hosts that can read it, unless an operator has chosen one. */
  withMemory?: boolean
}

/** Finds a host with room for an instance or a disk and takes the room: the host it is on already, else the best. Throws NoCapacity. */
export async function place(instanceId: string, wish: Wish): Promise<HostDocument> {
  const held = await heldBy(instanceId)
  if (held.host_id) return hostOf(held.host_id)
  return takeBest([held], wish, 'host_id')
}

/**
 * Finds another host with room for these together, which are on one, and takes the room there too. Throws NoCapacity.
 * Once they are there `arrive` gives up the former one; `stay` gives up the new one.
 */
export async function placeElsewhere(ids: [string, ...string[]], wish: Wish): Promise<HostDocument> {
  const held = await Promise.all(ids.map(heldBy))
  const target = held[0]?.target_host_id
  return target ? hostOf(target) : takeBest(held, wish, 'target_host_id')
}

/** Throws NoCapacity where `placeElsewhere` would. Nothing is taken: the room may be gone by then. */
export async function needRoomElsewhere(ids: [string, ...string[]], wish: Wish): Promise<void> {
  const held = await Promise.all(ids.map(heldBy))
  const { best, size, refusal } = await candidates(held, wish)
  const hasRoom = ({ capacity, reserved }: HostDocument): boolean =>
    reserved.cpu_milli + size.cpu_milli <= (capacity?.cpu_cores ?? 0) * 1000 &&
    reserved.memory_mib + size.memory_mib <= (capacity?.memory_mib ?? 0) &&
    reserved.disk_gib + size.disk_gib <= (capacity?.disk_gib ?? 0)
  if (!best.some(hasRoom)) throw refusal()
}

const isOpen = { status: 'active', cordoned: false } as const

/** The hosts by how few of its like they have, then by how much memory is free; the first with room is taken. */
async function takeBest(
  held: ReservationDocument[],
  wish: Wish,
  field: 'host_id' | 'target_host_id',
): Promise<HostDocument> {
  const { best, size, later, refusal } = await candidates(held, wish)
  return transaction(async () => {
    for (const host of best) {
      // What was read above may have changed: these two conditions decide.
      if (!(await takeRoom(host._id, size, isOpen))) continue
      await giveBack(host._id, later)
      for (const { _id, cpu_milli, memory_mib, disk_gib, tenant_id, host_id } of held) {
        const unplaced = { _id, tenant_id, cpu_milli, memory_mib, disk_gib, host_id, [field]: null }
        const placed = await Reservation.updateOne(unplaced, { $set: { [field]: host._id } })
        if (placed.matchedCount === 0) throw new Error(`the reservation of ${_id} changed meanwhile`)
      }
      return host
    }
    throw refusal()
  }, placementTurn)
}

/** The open hosts, the best first; what must be free there, how much of that is taken only later, and what to say when it is not. */
async function candidates(held: ReservationDocument[], wish: Wish) {
  const [hosts, crowd] = await Promise.all([hostsFor(held, wish), crowdOf(wish.apartFrom ?? [])])
  const [first] = held
  const later = wish.toRun && first ? beyond(wish.toRun, first) : sumOf([])
  const size = sumOf([...held, later])
  const others = hosts.filter(({ _id }) => held.every(({ host_id }) => _id !== host_id))
  const open = others.filter(({ status, cordoned }) => status === isOpen.status && !cordoned)
  const met = ({ _id }: HostDocument) => crowd.get(_id) ?? 0
  const best = open.toSorted((a, b) => met(a) - met(b) || free(b, size) - free(a, size))
  const refusal = (): NoCapacity => new NoCapacity(explain(others, open.length, size))
  return { best, size, later, refusal }
}

async function hostsFor(held: ReservationDocument[], wish: Wish): Promise<HostDocument[]> {
  const { kind = 'container', hostId, withMemory = false } = wish
  const from = held[0]?.host_id
  const here = withMemory && from && !hostId ? await hostOf(from) : null
  return Host.find({
    public_key: { $ne: null },
    ...(hostId ? { _id: hostId } : {}),
    ...(kind === 'container' ? {} : { kinds: kind }), // every host has those
    ...(here
      ? {
          'machines.version': here.machines?.version ?? null,
          'machines.accelerator': here.machines?.accelerator ?? null,
        }
      : {}),
  }).lean()
}

/** Of what is scarcest for what is to be placed: of memory for instances, of disk room for a disk alone. */
const free = ({ capacity, reserved }: HostDocument, { memory_mib }: Size): number =>
  memory_mib
    ? (capacity?.memory_mib ?? 0) - reserved.memory_mib
    : (capacity?.disk_gib ?? 0) - reserved.disk_gib

/** How many of these instances each host has. */
async function crowdOf(instanceIds: string[]): Promise<Map<string, number>> {
  if (instanceIds.length === 0) return new Map()
  const held = await Reservation.find({ _id: { $in: instanceIds } }, { host_id: 1, target_host_id: 1 })
    .setOptions(everyTenant)
    .lean()
  const counts = new Map<string, number>()
  for (const hostId of held.flatMap(hostsOf)) counts.set(hostId, (counts.get(hostId) ?? 0) + 1)
  return counts
}

async function hostOf(id: string): Promise<HostDocument> {
  const host = await Host.findById(id).lean()
  if (!host) throw new Error(`host ${id} is gone, with instances on it`)
  return host
}

/** Why none fits, without naming the hosts, which are no tenant's business. */
function explain(hosts: HostDocument[], open: number, size: Size): string {
  const count = (is: (host: HostDocument) => boolean): number => hosts.filter(is).length
  const reasons = [
    [open, 'too full'],
    [count(({ status }) => status !== 'active'), 'unreachable or being evacuated'],
    [count(({ status, cordoned }) => status === 'active' && cordoned), 'cordoned'],
  ] as const
  const what = open ? lacking(size) : 'No host takes new instances'
  const told = reasons.flatMap(([many, why]) => (many ? [`${many} ${why}`] : []))
  return told.length ? `${what} (${hosts.length} in all: ${told.join(', ')})` : what
}
