import type { HostReport, ObservedInstance } from '../../lib/host-protocol.ts'
import { OperationInProgress, StateConflict } from '../../lib/problem.ts'
import { noteActivity } from '../activity.ts'
import { acceptVerb } from '../operations.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Container, type ContainerDocument, containerResource } from './containers.ts'
import { Host } from './hosts.ts'

// A report that was on its way while an operation ended tells of the time before: what changed so recently
// is left to the next report, 10 s later.
const settledMs = 2_000

/**
 * Takes in what a host says of itself: records it, and where an instance is not as its owner wishes, notes
 * that in its activity feed and begins its repair.
 */
export async function observe(hostId: string, report: HostReport): Promise<void> {
  const { capacity, engine, data_plane_url, address } = report
  await Host.updateOne(
    { _id: hostId },
    { $set: { capacity, engine, data_plane_url, address, last_report_at: new Date() } },
  )
  const seen = new Map(report.instances.map((instance) => [instance.id, instance]))
  const settled = await Container.find({
    host_id: hostId,
    status: 'running',
    operation_id: null,
    updated_at: { $lt: new Date(Date.now() - settledMs) },
  })
    .setOptions(everyTenant)
    .lean()
  for (const container of settled) await compare(container, seen.get(container._id))
}

async function compare(container: ContainerDocument, seen: ObservedInstance | undefined): Promise<void> {
  if (seen?.state === 'running') return recordRunning(container, seen)
  if (seen?.state === 'exited' && isDone(container, seen)) return recordDone(container, seen)
  await repair(container, seen)
}

/** Whether its owner wants it to stay ended. */
const isDone = ({ restart_policy }: ContainerDocument, { exit_code }: ObservedInstance): boolean =>
  restart_policy === 'never' || (restart_policy === 'on_failure' && exit_code === 0)

async function recordRunning(container: ContainerDocument, seen: ObservedInstance): Promise<void> {
  const { restart_count, health, started_at } = seen
  const same = container.started_at?.toISOString() === started_at && container.health === health
  if (same && container.restart_count === restart_count) return
  await settle(container, { restart_count, health, started_at })
  if (restart_count > container.restart_count) {
    await note(
      container,
      'restarted',
      'The container ended and was started again by its restart policy',
      seen,
    )
  }
}

async function recordDone(container: ContainerDocument, seen: ObservedInstance): Promise<void> {
  const { exit_code } = seen
  const recorded = await settle(container, { status: 'stopped', desired_state: 'stopped', exit_code })
  if (recorded) await note(container, 'exited', `The container ended with exit code ${exit_code}`, seen)
}

async function repair(container: ContainerDocument, seen: ObservedInstance | undefined): Promise<void> {
  const { _id: id, tenant_id: tenantId } = container
  try {
    const { operation } = await acceptVerb({
      resource: containerResource,
      tenantId,
      requestedBy: null,
      id,
      verb: 'repair',
    })
    const what = seen
      ? `The container had ended (exit code ${seen.exit_code})`
      : 'The container was gone from its host'
    await note(container, 'repair', `${what}; it is being started again`, seen, {
      operation_id: operation._id,
    })
  } catch (error) {
    // Somebody else has begun to change it meanwhile, and knows better.
    if (!(error instanceof OperationInProgress) && !(error instanceof StateConflict)) throw error
  }
}

/** Changes the record, unless an operation has begun since it was read. */
async function settle(container: ContainerDocument, set: object): Promise<boolean> {
  const settled = await Container.updateOne(
    {
      _id: container._id,
      tenant_id: container.tenant_id,
      operation_id: null,
      updated_at: container.updated_at,
    },
    { $set: set },
  )
  return settled.modifiedCount === 1
}

const note = (
  { _id, tenant_id }: ContainerDocument,
  kind: string,
  message: string,
  seen: ObservedInstance | undefined,
  more: Record<string, unknown> = {},
): Promise<void> => {
  const data = { exit_code: seen?.exit_code ?? null, oom_killed: seen?.oom_killed ?? false, ...more }
  return noteActivity({ tenant_id, resource_id: _id, kind, message, data })
}
