import { proxyLocalActivities } from '@temporalio/workflow'
import type { ContainerActivities } from '../../activities/compute/containers.ts'
import type { Outcome } from '../../activities/operations.ts'
import type { ContainerSpec } from '../../drivers/containers.ts'
import { durable, type Work } from '../durable.ts'
import { on } from '../hosts.ts'

const platform = proxyLocalActivities<ContainerActivities>({
  startToCloseTimeout: '10 s', // one or two queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

export const createContainer = durable<{ start: boolean }>(async (work) => {
  const { id, input, undo, progress } = work
  if (input.start) return bringUp(work)
  progress('finding a host and pulling the image')
  undo(() => platform.abandonPlacement(id))
  const { host_id, spec } = await platform.placeContainer(id)
  const { image_digest } = await on(host_id).pullImage(spec.image)
  return { status: 'stopped', host_id, image_digest }
})

export const startContainer = durable(bringUp)

/** Brings back a container that should run and does not. */
export const repairContainer = durable(bringUp, { onFailure: 'error' })

async function bringUp({ id, operation_id, undo, progress }: Work<unknown>): Promise<Outcome> {
  // Said beside the placing: the host's work would wait for a write that comes after it.
  progress('finding a host, pulling the image and starting the container')
  undo(() => platform.abandonPlacement(id))
  const { host_id, host_address, spec, is_new } = await platform.placeContainer(id)

  // One that has run before keeps its files; of one that has not, nothing may stay on a host it then leaves.
  undo(() => (is_new ? on(host_id).removeContainer(id) : on(host_id).stopContainer(id, 0)))
  const found = await on(host_id).runContainer(spec, operation_id)
  return {
    // A job may be done before anybody looks.
    ...(found.state === 'running' ? { status: 'running' } : { status: 'stopped', desired_state: 'stopped' }),
    host_id,
    image_digest: found.image_digest,
    bindings: found.ports.map((port) => ({ ...port, host_address })),
    started_at: found.started_at,
    exit_code: found.exit_code,
    pending_changes: [],
  }
}

export const stopContainer = durable<{ grace_sec: number }>(async ({ id, input, progress }) => {
  progress('waiting for the container to end')
  const { host_id } = await platform.placementOf(id)
  const exit_code = host_id ? await on(host_id).stopContainer(id, input.grace_sec) : null
  return { status: 'stopped', exit_code }
})

export const updateContainer = durable<{ changes: Partial<ContainerSpec> }>(async (work) => {
  const { id, input, before, undo } = work
  const { changes } = input
  // The size was reserved when the change was accepted; should it fail, the record still says the old one.
  undo(() => platform.reserveRecordedSize(id))
  const pending_changes = before === 'running' ? await applyLive(work) : []
  return { ...changes, ...outdated(changes, before), status: before, pending_changes }
})

/** What was known of the old image and the old ports, and is so no longer. */
function outdated({ image, ports }: Partial<ContainerSpec>, before: string): Record<string, unknown> {
  const unbound = ports?.map((port) => ({ ...port, host_address: null }))
  return {
    ...(image ? { image_digest: null } : {}),
    ...(unbound && before !== 'running' ? { bindings: unbound } : {}),
  }
}

/** Applies what the engine can change while it runs. Returns what waits for the next start. */
async function applyLive({ id, input, undo }: Work<{ changes: Partial<ContainerSpec> }>): Promise<string[]> {
  const { host_id, spec, pending_changes } = await platform.runningContainer(id, Object.keys(input.changes))
  undo(() => on(host_id).resizeContainer(id, spec))
  await on(host_id).resizeContainer(id, { ...spec, ...input.changes })
  return pending_changes
}

export const deleteContainer = durable(
  async ({ id, progress }) => {
    progress('removing the container')
    const { host_id } = await platform.placementOf(id)
    if (host_id) await on(host_id).removeContainer(id)
    await platform.releaseContainer(id)
    return 'deleted'
  },
  { final: true },
)
