import { findInstances } from '../../models/compute/instance-kinds.ts'
import { Reservation } from '../../models/compute/reservations.ts'
import { Replica } from '../../models/network/load-balancers.ts'
import { Disk } from '../../models/storage/disks.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

/** The same as the default of a stop. */
const graceSec = 10

/** A resource on a host, and the operation that moves it. */
interface Movable {
  kind: string
  id: string
  verb: string
  input: Record<string, unknown>
}

export const makePlatformHostActivities = () => ({
  /**
   * The instances and load balancers on a host, and the disks that no instance has attached: attached disks move with
   * the instance.
   */
  async movablesOn(hostId: string): Promise<Movable[]> {
    // Search the reservations: an instance that is being created has no `host_id` yet.
    const held = await Reservation.find({ host_id: hostId }, { _id: 1 }).setOptions(everyTenant).lean()
    const these = { _id: { $in: held.map(({ _id }) => _id) } }
    const instances = await findInstances(these)
    const others = { 'attached_to.id': { $nin: instances.map(({ instance }) => instance._id) } }
    const disks = await Disk.find({ ...these, ...others }, { _id: 1 })
      .setOptions(everyTenant)
      .lean()
    const replicas = await Replica.find({ host_id: hostId }).setOptions(everyTenant).lean()
    return [
      ...replicas.map(({ load_balancer_id }) => ({
        kind: 'load_balancer',
        id: load_balancer_id,
        verb: 'reschedule',
        input: { from_host_id: hostId, host_id: null },
      })),
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
