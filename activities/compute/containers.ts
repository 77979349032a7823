import { ApplicationFailure } from '@temporalio/activity'
import type { ContainerSpec } from '../../drivers/containers.ts'
import { Container, type ContainerDocument, specOf } from '../../models/compute/containers.ts'
import { place, Reservation, release, resize } from '../../models/compute/reservations.ts'
import { sizeOf } from '../../models/identity/tenants.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

/** Changes that the engine makes while a container runs. The rest waits for the next start. */
const live = new Set(['cpu_cores', 'memory_mib', 'restart_policy', 'tags', 'name'])

export const makeContainerActivities = () => ({
  /** The host that this container is on, or one with room, which is then taken; and what to run there. */
  async placeContainer(
    id: string,
  ): Promise<{ host_id: string; host_address: string; spec: ContainerSpec; is_new: boolean }> {
    const container = await containerOf(id)
    const host = await place(id, container.wanted_host_id)
    const is_new = container.host_id === null
    return { host_id: host._id, host_address: host.address ?? '', spec: specOf(container), is_new }
  },

  /** Where it is, as far as anything of it may be on a host. */
  async placementOf(id: string): Promise<{ host_id: string | null }> {
    const container = await containerOf(id)
    const held = await Reservation.findOne({ _id: id, tenant_id: container.tenant_id }).lean()
    return { host_id: held?.host_id ?? container.host_id }
  },

  /** Gives back what it holds, unless it lives on a host already and only its start failed. */
  async abandonPlacement(id: string): Promise<void> {
    const { host_id } = await containerOf(id)
    if (host_id === null) await release(id)
  },

  releaseContainer: (id: string): Promise<void> => release(id),

  async reserveRecordedSize(id: string): Promise<void> {
    const container = await containerOf(id)
    await resize(id, container.tenant_id, sizeOf(container))
  },

  /** Where and what it is, and which fields wait for the next start once these have changed too. */
  async runningContainer(
    id: string,
    changed: string[],
  ): Promise<{ host_id: string; spec: ContainerSpec; pending_changes: string[] }> {
    const container = await containerOf(id)
    const { host_id } = container
    if (host_id === null) throw ApplicationFailure.nonRetryable('The container is on no host', 'not_placed')
    const waiting = changed.filter((field) => !live.has(field))
    return {
      host_id,
      spec: specOf(container),
      pending_changes: [...new Set([...container.pending_changes, ...waiting])],
    }
  },
})

export type ContainerActivities = ReturnType<typeof makeContainerActivities>

async function containerOf(id: string): Promise<ContainerDocument> {
  const container = await Container.findById(id).setOptions(everyTenant).lean()
  if (!container) throw ApplicationFailure.nonRetryable('The container is gone', 'not_found')
  return container
}
