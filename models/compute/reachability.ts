import type { SignOfLife } from '../../lib/host-protocol.ts'
import { noteActivity } from '../activity.ts'
import { Host } from './hosts.ts'
import { findInstances, type Instance } from './instance-kinds.ts'

/** A host that gave no sign of life for this long is unreachable: it missed three. */
export const silentAfterMs = 30_000

/** Takes a host's sign of life. Its instances are reachable again with its next report, which says what runs. */
export async function hear(hostId: string, { engine_silent_ms }: SignOfLife): Promise<void> {
  const now = Date.now()
  const engine_silent_since = engine_silent_ms === null ? null : new Date(now - engine_silent_ms)
  await Host.updateOne(
    { _id: hostId },
    { $set: { last_heard_at: new Date(now), unreachable_since: null, engine_silent_since } },
  )
  await Host.updateOne(
    { _id: hostId, status: 'unreachable', operation_id: null },
    { $set: { status: 'active' } },
  )
}

/** When the last sign of life of any host came, in milliseconds; 0 if none ever did. */
export async function lastHeardAt(): Promise<number> {
  const last = await Host.findOne({}, { last_heard_at: 1 }).sort({ last_heard_at: -1 }).lean()
  return last?.last_heard_at?.getTime() ?? 0
}

/**
 * Marks silent hosts, and the instances that run on them, as unreachable. A host's next sign of life reverts this for
 * the host, and its next report for its instances (observe-instances.ts). Returns the names of the newly marked hosts.
 */
export async function markUnreachable(now = Date.now()): Promise<string[]> {
  const silent = await Host.find(
    { last_heard_at: { $lt: new Date(now - silentAfterMs) } },
    { name: 1, last_heard_at: 1 },
  ).lean()
  const fresh: string[] = []
  for (const { _id, name, last_heard_at } of silent) {
    const still = { _id, last_heard_at }
    const marked = await Host.updateOne(
      { ...still, unreachable_since: null },
      { $set: { unreachable_since: new Date(now) } },
    )
    if (marked.modifiedCount) fresh.push(name)
    await Host.updateOne(
      { ...still, status: 'active', operation_id: null },
      { $set: { status: 'unreachable' } },
    )
  }
  const running = { host_id: { $in: silent.map(({ _id }) => _id) }, status: 'running', operation_id: null }
  for (const one of await findInstances(running)) {
    await changeReach(one, 'unreachable', `The host of the ${one.kind.title} does not answer`)
  }
  return fresh
}

/** Marks an instance as running after its host has reported again. */
export const markReachable = (one: Instance): Promise<void> => changeReach(one, 'running', null)

async function changeReach(
  { kind, instance }: Instance,
  next: 'unreachable' | 'running',
  status_reason: string | null,
): Promise<void> {
  const { _id, tenant_id, status } = instance
  const { modifiedCount } = await kind.model.updateOne(
    { _id, tenant_id, status, operation_id: null },
    { $set: { status: next, status_reason } },
  )
  if (!modifiedCount) return
  const event = next === 'running' ? 'reachable' : 'unreachable'
  const message = status_reason ?? `The host of the ${kind.title} answers again`
  await noteActivity({ tenant_id, resource_id: _id, kind: event, message, data: {} })
}
