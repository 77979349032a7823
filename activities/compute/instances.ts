import { ApplicationFailure } from '@temporalio/activity'
import type { InstanceKindName } from '../../lib/host-protocol.ts'
import type { PlacedContainer } from '../../models/compute/containers.ts'
import { type Instance, instanceKinds } from '../../models/compute/instance-kinds.ts'
import { type PlacedSpec, constraintsOf } from '../../models/compute/instances.ts'
import { removeArchive } from '../../models/compute/log-archive.ts'
import type { PlacedMachine } from '../../models/compute/machines.ts'
import { place, placeElsewhere } from '../../models/compute/placement.ts'
import { beyond, heldBy, hostsOf, Reservation, release, resize } from '../../models/compute/reservations.ts'
import { cutOff, resolverOf } from '../../models/network/host-networks.ts'
import { releaseNics } from '../../models/network/nics.ts'
import { pathsOf } from '../../models/network/paths.ts'
import { disksOf, freeDisks } from '../../models/storage/attachments.ts'
import { arriveTogether, stayTogether, takeDisks } from '../../models/storage/moves.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { detachAllOf } from '../deploy/attachments.ts'
import { networkHosts } from '../network/networks.ts'
import { answering } from './answering.ts'
import { permanently } from '../failures.ts'
import { followDisks, needsDisksThere, readyDisks } from './disk-hosts.ts'

/** Each activity takes the instance's kind, so that it queries one collection and not three. */
export const makeInstanceActivities = () => ({
  /** The instance's host, or a new one on which it reserves room, and the spec to run there. */
  async placeInstance(kindName: InstanceKindName, id: string): Promise<Placed> {
    const one = await instanceOf(kindName, id)
    const { kind, instance } = one
    const diskHost = await readyDisks(one)
    const moved = diskHost !== null && (await followDisks(one, diskHost))
    const host = await place(id, await constraintsOf(kind, instance, diskHost ?? instance.wanted_host_id))
    if (host.unreachable_since) {
      const detail = `The ${kind.title}’s host does not answer; reschedule the ${kind.title} to run it on another host`
      throw ApplicationFailure.nonRetryable(detail, 'host_unreachable')
    }
    const is_new = instance.host_id === null || moved
    const host_id = host._id
    return {
      host_id,
      host_address: host.address ?? '',
      is_new,
      ...(await withNetwork(one, [host_id])),
      ...((await lacksRoom(one)) ? { lacks_room: true } : {}),
    }
  },

  /** The host that may have parts of the instance; null if there is none or it does not answer. */
  async placementOf(
    kind: InstanceKindName,
    id: string,
  ): Promise<{ host_id: string | null; disk_ids: string[]; network_hosts: string[] }> {
    const { instance } = await instanceOf(kind, id)
    const held = await Reservation.findOne({ _id: id, tenant_id: instance.tenant_id }).lean()
    const disk_ids = (await disksOf(instance)).map(({ _id }) => _id)
    const network_hosts = instance.nics.length ? await networkHosts(id) : []
    return { host_id: await answering(held?.host_id ?? instance.host_id), disk_ids, network_hosts }
  },

  /**
   * Reserves room on another host for the instance and its disks. The operation then holds the disks. `from_host_id` is
   * the present host, or null if it does not answer.
   */
  async placeInstanceElsewhere(
    kindName: InstanceKindName,
    id: string,
    wantedHostId: string | null,
    operationId: string,
  ): Promise<Move> {
    const one = await instanceOf(kindName, id)
    const { kind, instance } = one
    const from_host_id = await answering(instance.host_id)
    if (kind.moves_whole && from_host_id === null) throw cannotLeave(one)
    await needsDisksThere(one, from_host_id)
    const disks = await permanently(() => takeDisks(instance, operationId))
    const constraints = await constraintsOf(kind, instance, wantedHostId)
    const host = await placeElsewhere([id, ...disks.map(({ _id }) => _id)], constraints)
    if (instance.host_id && !from_host_id) await cutOff(id, instance.host_id)
    return {
      from_host_id,
      disks: disks.map(({ _id, name }) => ({ id: _id, name })),
      host_id: host._id,
      host_address: host.address ?? '',
      ...(await withNetwork(one, [host._id])),
      runs: instance.desired_state === 'running',
    }
  },

  /** Completes the move. The former host removes what is left at its next report. */
  arriveInstance: (id: string, operationId: string): Promise<void> => arriveTogether(operationId, id),

  /** Gives up the move: the instance and its disks stay on their host. */
  stayInstance: (id: string, operationId: string): Promise<void> => stayTogether(operationId, id),

  /** Releases the reservation, unless the instance was on a host before and only its start failed. */
  async abandonPlacement(kind: InstanceKindName, id: string): Promise<void> {
    const { instance } = await instanceOf(kind, id)
    if (instance.host_id === null) await release(id)
  },

  /** Releases the reservation and NICs of a deleted instance, deletes its log archive, and detaches disks and databases. */
  async releaseInstance(kind: InstanceKindName, id: string): Promise<void> {
    const { instance } = await instanceOf(kind, id)
    await freeDisks(instance)
    await removeArchive(id)
    const held = instance.nics.length ? await Reservation.findById(id).setOptions(everyTenant).lean() : null
    for (const hostId of held ? hostsOf(held) : []) if (!(await answering(hostId))) await cutOff(id, hostId)
    await detachAllOf(id)
    await release(id)
    await releaseNics(id)
  },

  async reserveRecordedSize(kindName: InstanceKindName, id: string): Promise<void> {
    const { kind, instance } = await instanceOf(kindName, id)
    await resize(id, instance.tenant_id, kind.sizeOf(instance))
  },

  /** The instance's host and spec, and the fields that wait for the next start once `changed` have changed too. */
  async runningInstance(
    kindName: InstanceKindName,
    id: string,
    changed: string[],
  ): Promise<{ host_id: string; spec: PlacedSpec; pending_changes: string[] }> {
    const { kind, instance } = await instanceOf(kindName, id)
    const { host_id } = instance
    if (host_id === null)
      throw ApplicationFailure.nonRetryable(`The ${kind.title} is not on a host`, 'not_placed')
    const waiting = changed.filter((field) => !kind.live.has(field))
    return {
      host_id,
      spec: kind.specOf(instance),
      pending_changes: [...new Set([...instance.pending_changes, ...waiting])],
    }
  },
})

export type InstanceActivities = ReturnType<typeof makeInstanceActivities>

/** The spec that a host gets, for each kind. */
export interface Specs {
  container: PlacedContainer
  microvm: PlacedMachine
  vm: PlacedMachine
}

/** `S` is the spec of the kind. */
export interface Placed<S extends PlacedSpec = PlacedSpec> {
  host_id: string
  host_address: string
  spec: S
  /** The instance was not on this host before. */
  is_new: boolean
  network_hosts: string[]
  /** The instance was suspended, and its host has given its room to others. */
  lacks_room?: boolean
}

export interface Move<S extends PlacedSpec = PlacedSpec> {
  from_host_id: string | null
  host_id: string
  host_address: string
  spec: S
  runs: boolean
  disks: { id: string; name: string }[]
  network_hosts: string[]
}

/** Throws `not_found`. */
export async function instanceOf(kindName: InstanceKindName, id: string): Promise<Instance> {
  const kind = instanceKinds[kindName]
  const instance = await kind.model.findById(id).setOptions(everyTenant).lean()
  if (!instance) throw ApplicationFailure.nonRetryable('The instance no longer exists', 'not_found')
  return { kind, instance }
}

/** Whether the reservation is too small to run: possible when the instance resumes. */
async function lacksRoom({ kind, instance }: Instance): Promise<boolean> {
  if (instance.status !== 'resuming') return false // the usual case: saves the query
  const lacks = beyond(kind.sizeOf(instance), await heldBy(instance._id))
  return lacks.cpu_milli > 0 || lacks.memory_mib > 0
}

/** Why an instance that moves with its root disk cannot leave: the only copy is on its host. */
function cannotLeave({ kind: { title }, instance }: Instance): ApplicationFailure {
  if (instance.host_id === null)
    return ApplicationFailure.nonRetryable(`The ${title} is not on a host yet: start it`, 'not_placed')
  const detail = `The ${title}’s root disk is on a host that does not answer`
  return ApplicationFailure.nonRetryable(detail, 'host_unreachable')
}

/** The spec with its network, and the other hosts to tell of its NICs: those that answer. */
async function withNetwork(
  { kind, instance }: Instance,
  except: string[],
): Promise<{ spec: PlacedSpec; network_hosts: string[] }> {
  const spec = kind.specOf(instance)
  if (instance.nics.length === 0) return { spec, network_hosts: [] }
  const { _id, tenant_id } = instance
  const [network, hosts, paths] = await Promise.all([
    resolverOf(tenant_id, _id),
    networkHosts(_id),
    pathsOf(_id),
  ])
  // A path comes to its instance's new host only once the instance is there for good: that host is told, too.
  const network_hosts =
    paths.length > 0 ? [...new Set([...hosts, ...except])] : hosts.filter((id) => !except.includes(id))
  return { spec: { ...spec, network }, network_hosts }
}
