import { findInstances } from '../../models/compute/instance-kinds.ts'
import { Reservation } from '../../models/compute/reservations.ts'
import { Disk } from '../../models/storage/disks.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

/** An instance that is being evacuated has as long to end as one that is stopped. */
const graceSec = 10

/** What is on a host, and by which verb it goes to another. */
interface Movable {
  kind: string
  id: string
  verb: string
  input: Record<string, unknown>
}

export const makePlatformHostActivities = () => ({
  /** The instances on a host, and the disks that belong to none of these: an instance's own go with it. */
  async movablesOn(hostId: string): Promise<Movable[]> {
    // By what they hold there, since one that is still being created names no host yet.
    const held = await Reservation.find({ host_id: hostId }, { _id: 1 }).setOptions(everyTenant).lean()
    const these = { _id: { $in: held.map(({ _id }) => _id) } }
    const instances = await findInstances(these)
    const others = { 'attached_to.id': { $nin: instances.map(({ instance }) => instance._id) } }
    const disks = await Disk.find({ ...these, ...others }, { _id: 1 })
      .setOptions(everyTenant)
      .lean()
    return [
      ...instances.map(({ kind, instance }) => ({
        kind: kind.kind,
        id: instance._id,
        verb: 'reschedule',
        input: { host_id: null, grace_sec: graceSec },
      })),
      ...disks.map(({ _id }) => ({
        kind: 'disk',
        id: _id,
        verb: 'migrate',
        input: { target_host_id: null, bandwidth_mib_per_sec: null },
      })),
    ]
  },
})

export type PlatformHostActivities = ReturnType<typeof makePlatformHostActivities>
