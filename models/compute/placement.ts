import { transaction } from '../database.ts'
import type { PlacedKindName } from '../../lib/host-protocol.ts'
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
  shortOf,
  sumOf,
  takeRoom,
} from './reservations.ts'

// Chooses the host of an instance or a disk.

/** Constraints and preferences for the host of an instance or a disk. */
export interface Constraints {
  /** The host must run this kind. Not set for a disk: every host can store disks. */
  kind?: PlacedKindName
  /** The only allowed host, if an operator has chosen one. */
  hostId?: string | null
  /** Instances to keep apart from: hosts with fewer of them come first. */
  apartFrom?: string[]
  /** Hosts that do not qualify. */
  notOn?: string[]
  /** The size of the first holder once it runs. The host must have this free, but only its present size is reserved. */
  toRun?: Size
  /** The saved memory moves along: only hosts that can read it qualify, unless an operator has chosen one. */
  withMemory?: boolean
}

/**
 * How long a host, or its engine, may be silent and still be waited for: after an outage of the platform’s own API, all
 * hosts are unreachable, and are heard within seconds.
 */
const awaitedMs = 60_000
const isAwaited = ({ unreachable_since, engine_silent_since, cordoned }: HostDocument): boolean => {
  const since = unreachable_since ?? engine_silent_since
  return !cordoned && since !== null && since.getTime() > Date.now() - awaitedMs
}

/**
 * Reserves room for an instance or a disk: on the host that it has already, else on the best one. Throws NoCapacity, which
 * is not permanent while a host has been silent for a short time.
 */
export async function place(instanceId: string, constraints: Constraints): Promise<HostDocument> {
  const held = await heldBy(instanceId)
  if (held.host_id) return hostOf(held.host_id)
  return takeBest([held], constraints, 'host_id', isAwaited)
}

/**
 * Reserves room on another host for these instances and disks, which share a host. The room on their present host stays
 * reserved: `arrive` releases it after the move, `stay` releases the new room instead. Throws NoCapacity.
 */
export async function placeElsewhere(
  ids: [string, ...string[]],
  constraints: Constraints,
): Promise<HostDocument> {
  const held = await Promise.all(ids.map(heldBy))
  const target = held[0]?.target_host_id
  return target ? hostOf(target) : takeBest(held, constraints, 'target_host_id')
}

/** Throws NoCapacity if `placeElsewhere` would, which also says what the present host lacks. Reserves nothing, so that `placeElsewhere` may still fail later. */
export async function needRoomElsewhere(ids: [string, ...string[]], constraints: Constraints): Promise<void> {
  const held = await Promise.all(ids.map(heldBy))
  const { best, size, later, refusal } = await candidates(held, constraints)
  const hasRoom = ({ capacity, reserved }: HostDocument): boolean =>
    reserved.cpu_milli + size.cpu_milli <= (capacity?.cpu_cores ?? 0) * 1000 &&
    reserved.memory_mib + size.memory_mib <= (capacity?.memory_mib ?? 0) &&
    reserved.disk_gib + size.disk_gib <= (capacity?.disk_gib ?? 0)
  if (best.some(hasRoom)) return
  const from = held[0]?.host_id
  const short = from ? shortOf(await hostOf(from), later).join(' and ') : ''
  throw refusal({ own: short ? `Its own host has too little ${short}. ` : '' })
}

const isOpen = { status: 'active', cordoned: false, engine_silent_since: null } as const
const takesMore = (host: Pick<HostDocument, keyof typeof isOpen>): boolean =>
  host.status === isOpen.status && !host.cordoned && !host.engine_silent_since

/** Reserves room on the first candidate that has it. Placements at once see each other, so that equal tags spread. */
async function takeBest(
  held: ReservationDocument[],
  constraints: Constraints,
  field: 'host_id' | 'target_host_id',
  mayWaitFor: (host: HostDocument) => boolean = () => false,
): Promise<HostDocument> {
  return transaction(async () => {
    const { best, size, later, refusal, others } = await candidates(held, constraints)
    for (const host of best) {
      if (!(await takeRoom(host._id, size, isOpen))) continue
      await giveBack(host._id, later)
      for (const { _id, cpu_milli, memory_mib, disk_gib, tenant_id, host_id } of held) {
        const unplaced = { _id, tenant_id, cpu_milli, memory_mib, disk_gib, host_id, [field]: null }
        const placed = await Reservation.updateOne(unplaced, { $set: { [field]: host._id } })
        if (placed.matchedCount === 0) throw new Error(`the reservation of ${_id} changed meanwhile`)
      }
      return host
    }
    throw refusal({ mayChange: others.some(mayWaitFor) })
  }, placementTurn)
}

/**
 * The open hosts, best first: fewest instances to keep apart from, then most free memory or disk. `size` must be free
 * there; `later` is the part of it that is not reserved yet.
 */
async function candidates(held: ReservationDocument[], constraints: Constraints) {
  const hosts = await hostsFor(held, constraints) // one query after another, as in any transaction
  const crowd = await crowdOf(constraints.apartFrom ?? [])
  const [first] = held
  const later = constraints.toRun && first ? beyond(constraints.toRun, first) : sumOf([])
  const size = sumOf([...held, later])
  const others = hosts.filter(({ _id }) => held.every(({ host_id }) => _id !== host_id))
  const open = others.filter(takesMore)
  const met = ({ _id }: HostDocument) => crowd.get(_id) ?? 0
  const best = open.toSorted((a, b) => met(a) - met(b) || free(b, size) - free(a, size))
  const who = held.some(({ host_id }) => host_id) ? 'No other host' : 'No host'
  const refusal = ({ own = '', mayChange = false } = {}): NoCapacity =>
    new NoCapacity(`${own}${explain(others, size, who)}`, { mayChange })
  return { best, size, later, others, refusal }
}

async function hostsFor(held: ReservationDocument[], constraints: Constraints): Promise<HostDocument[]> {
  const { kind = 'container', hostId, notOn = [], withMemory = false } = constraints
  const from = held[0]?.host_id
  const here = withMemory && from && !hostId ? await hostOf(from) : null
  return Host.find({
    public_key: { $ne: null },
    ...(hostId ? { _id: hostId } : notOn.length ? { _id: { $nin: notOn } } : {}),
    ...(kind === 'container' ? {} : { kinds: kind }), // every host runs containers
    ...(here
      ? {
          'machines.version': here.machines?.version ?? null,
          'machines.accelerator': here.machines?.accelerator ?? null,
        }
      : {}),
  }).lean()
}

/** The free amount that ranks hosts: memory for instances, disk for a disk alone. */
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

/** Why no host fits: what is full, too. It does not name hosts: tenants must not see them. */
export function explain(
  hosts: Pick<HostDocument, keyof typeof isOpen | 'capacity' | 'reserved'>[],
  size: Size,
  who = 'No host',
): string {
  const open = hosts.filter(takesMore)
  const shorts = Map.groupBy(open, (host) => shortOf(host, size).join(' and '))
  const count = (is: (host: (typeof hosts)[number]) => boolean): number => hosts.filter(is).length
  const reasons: [many: number, why: string][] = [
    ...[...shorts].map(([short, { length }]): [number, string] => [
      length,
      short ? `with too little ${short}` : 'filled by another placement meanwhile',
    ]),
    [count(({ status }) => status !== 'active'), 'unreachable or being evacuated'],
    [count(({ status, cordoned }) => status === 'active' && cordoned), 'cordoned'],
    [
      count((host) => host.status === 'active' && !host.cordoned && host.engine_silent_since !== null),
      'with an engine that does not answer',
    ],
  ]
  const what = open.length ? lacking(size, `${who} has`) : `${who} takes new instances`
  const told = reasons.flatMap(([many, why]) => (many ? [`${many} ${why}`] : []))
  return told.length ? `${what} (${hosts.length} in all: ${told.join(', ')})` : what
}
