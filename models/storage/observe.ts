import { ObservedDisk, type WantedDisk } from '../../lib/host-protocol.ts'
import { noteActivity } from '../activity.ts'
import { findInstances } from '../compute/instance-kinds.ts'
import { observer } from '../compute/observer.ts'
import { strangersOn } from '../compute/reservations.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Disk, type DiskDocument } from './disks.ts'

// A host checks its disks every few seconds, so a report may be this old.
const lookedMs = 15_000

/**
 * Handles a host's report of its disks: records changes of condition, and answers with the wanted state of each disk.
 * An instance that its engine has restarted needs its disks attached.
 */
export const diskObserver = observer({
  kinds: ['disk'],
  schema: ObservedDisk,
  async observe(hostId, seen) {
    const states = new Map(seen.map(({ id, state }) => [id, state]))
    const idle = await Disk.find({
      host_id: hostId,
      operation_id: null,
      status: { $in: ['available', 'attached'] },
    })
      .setOptions(everyTenant)
      .lean()
    for (const disk of idle) await compare(disk, states.get(disk._id))
    const ids = [...states.keys()]
    if (ids.length === 0) return { not_yours: [] }
    return { not_yours: await strangersOn(hostId, ids), things: await wantedDisks(hostId, ids) }
  },
})

const conditions = {
  sound: { reason: null, message: 'The disk is available again' },
  broken: { reason: 'The process that serves the disk ended; the host is restarting it', message: null },
  failing: {
    reason:
      'Writes to the disk fail, since its host’s disk is full or broken. What was synced before is kept; the host makes it writable again as soon as it can',
    message: null,
  },
  missing: { reason: 'The disk is missing on its host', message: null },
} as const

async function compare(disk: DiskDocument, state: ObservedDisk['state'] | undefined): Promise<void> {
  const condition =
    state === undefined || state === 'leftover'
      ? 'missing'
      : state === 'broken' || state === 'failing'
        ? state
        : 'sound'
  const { _id, tenant_id, attached_to, name, updated_at } = disk
  if (condition === 'missing' && updated_at.getTime() > Date.now() - lookedMs) return
  if (condition === (disk.condition ?? 'sound')) return
  const { reason, message } = conditions[condition]
  const changed = await Disk.updateOne(
    { _id, tenant_id, operation_id: null, updated_at },
    { $set: { condition, status_reason: reason } },
  )
  if (changed.modifiedCount === 0) return
  for (const resource_id of [_id, ...(attached_to ? [attached_to.id] : [])]) {
    const text = `Disk ${name}: ${message ?? reason}`
    await noteActivity({
      tenant_id,
      resource_id,
      kind: `disk_${condition}`,
      message: text,
      data: { disk_id: _id },
    })
  }
}

/** The wanted state of these disks of a host. Leaves out disks without a reservation on it. */
export async function wantedDisks(hostId: string, ids: string[]): Promise<WantedDisk[]> {
  const strangers = new Set(await strangersOn(hostId, ids))
  const own = ids.filter((id) => !strangers.has(id))
  const disks = await Disk.find({ _id: { $in: own } })
    .setOptions(everyTenant)
    .lean()
  const owners = disks.flatMap(({ attached_to }) => attached_to?.id ?? [])
  const instances = owners.length ? await findInstances({ _id: { $in: owners } }) : []
  const byId = new Map(instances.map(({ instance }) => [instance._id, instance]))
  return disks.map(({ _id, attached_to, status, operation_id, host_id, written_by_machine }) => {
    const instance = attached_to ? byId.get(attached_to.id) : undefined
    // A suspended machine keeps its disks as they are.
    const isHeld = Boolean(instance?.operation_id) || instance?.status === 'suspended'
    const busy = status === 'migrating' || host_id !== hostId || isHeld
    const runs = instance !== undefined && ['running', 'unreachable'].includes(instance.status)
    return {
      kind: 'disk',
      id: _id,
      instance_id: attached_to?.id ?? null,
      mount_path: attached_to?.mount_path ?? null,
      read_only: attached_to?.read_only ?? false,
      written_by_machine,
      moved_by: status === 'migrating' ? operation_id : null,
      state: busy ? 'as_is' : runs ? 'attached' : 'detached',
    }
  })
}
