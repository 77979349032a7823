import { noteActivity } from '../activity.ts'
import { Host } from './hosts.ts'
import { findInstances, type Instance } from './instance-kinds.ts'

/** A host that has not reported for this long is unreachable: it missed three reports. */
export const silentAfterMs = 30_000

/**
 * Marks silent hosts, and the instances that run on them, as unreachable. The next report of a host reverts this
 * (observe.ts). Returns the names of the newly marked hosts.
 */
export async function markUnreachable(now = Date.now()): Promise<string[]> {
  const silent = await Host.find(
    { last_report_at: { $lt: new Date(now - silentAfterMs) } },
    { name: 1, last_report_at: 1 },
  ).lean()
  const fresh: string[] = []
  for (const { _id, name, last_report_at } of silent) {
    const still = { _id, last_report_at }
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
