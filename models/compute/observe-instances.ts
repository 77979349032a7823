import { instanceKindNames, ObservedInstance } from '../../lib/host-protocol.ts'
import { OperationInProgress, QuotaExceeded, StateConflict } from '../../lib/problem.ts'
import { noteActivity } from '../activity.ts'
import { transaction } from '../database.ts'
import { acceptVerb } from '../operations.ts'
import { findInstances, type Instance } from './instance-kinds.ts'
import type { InstanceDocument } from './instances.ts'
import { isLoopReason, loopReason } from './crash-loops.ts'
import { countRepair, isRepairing, repairsAtOnce, rowOf } from './repairs.ts'
import { observer } from './observer.ts'
import { markReachable } from './reachability.ts'
import { NoCapacity, resize, shrink, strangersOn } from './reservations.ts'
import { roomlessAs, roomlessBy } from './waits-for-room.ts'

// A report may be older than the end of an operation. A record that changed after the report was begun, or less than
// this before, is left to the next report, 10 s later.
const recentMs = 2_000
// No report is older than this.
const reportedMs = 15_000

/**
 * Compares the instances that a host reports with their records. Repairs an instance that differs from its desired
 * state, and notes that in its activity feed.
 */
export const instanceObserver = observer({
  kinds: instanceKindNames,
  schema: ObservedInstance,
  async observe(hostId, instances, ageMs) {
    const seen = new Map(instances.map((instance) => [instance.id, instance]))
    const not_yours = await strangersOn(hostId, [...seen.keys()])
    const idle = await findInstances({
      host_id: hostId,
      status: { $in: ['running', 'suspended', 'unreachable'] },
      operation_id: null,
      updated_at: { $lt: new Date(Date.now() - ageMs - recentMs) },
    })
    for (const one of idle) {
      // The next report is compared with the record.
      if (one.instance.status === 'unreachable') await markReachable(one)
      else await compare(one, seen.get(one.instance._id))
    }
    return { not_yours }
  },
})

async function compare(one: Instance, seen: ObservedInstance | undefined): Promise<void> {
  if (seen?.state === 'unknown') return
  if (one.instance.status === 'suspended' || seen?.state === 'suspended') return compareSuspended(one, seen)
  if (seen?.state === 'running') return recordRunning(one, seen)
  if (seen?.state === 'exited' && seen.ended_by === 'disk_full') return recordFull(one, seen)
  if (seen?.state === 'exited' && isDone(one.instance, seen)) return recordDone(one, seen)
  await repair(one, seen)
}

/**
 * Corrects the record of a machine that its host suspended or resumed although the operation could not learn its
 * outcome: the host was unreachable. A report older than the record must not change it.
 */
async function compareSuspended(one: Instance, seen: ObservedInstance | undefined): Promise<void> {
  const { kind, instance } = one
  const { _id, tenant_id, status, updated_at } = instance
  if (status === seen?.state || updated_at.getTime() > Date.now() - reportedMs) return
  const is = seen?.state === 'running' || seen?.state === 'suspended' ? seen.state : 'stopped'
  const message = `The ${kind.title} is ${is} on its host, but was recorded as ${status}`
  const size = kind.sizeOf({ ...instance, desired_state: is })
  const recorded = await transaction(async () => {
    const set = { status: is, desired_state: is, ...(is === 'stopped' ? { runs_with: null } : {}) }
    if (!(await record(one, set))) return false
    // It is suspended, whether or not there is room for its memory's file.
    if (is === 'suspended') await shrink(_id, tenant_id, size)
    else await resize(_id, tenant_id, size)
    return true
  }, tenant_id)
  if (recorded && is === 'suspended') await resize(_id, tenant_id, size).catch(unlessFull)
  if (recorded) await note(instance, is, message, seen)
}

function unlessFull(error: unknown): void {
  if (!(error instanceof NoCapacity || error instanceof QuotaExceeded)) throw error
}

/** Whether the restart policy lets an exited instance stay stopped. */
const isDone = ({ restart_policy }: InstanceDocument, { exit_code }: ObservedInstance): boolean =>
  restart_policy === 'never' || (restart_policy === 'on_failure' && exit_code === 0)

async function recordRunning(one: Instance, seen: ObservedInstance): Promise<void> {
  const { restart_count, health, started_at } = seen
  const { instance, kind } = one
  const was = healthOf(instance)
  const loop = loopOf(one, seen)
  // A loop's reason comes first; the next report tells of room.
  const room = loop || seen.crash_looping ? null : roomOf(one, seen)
  const same = instance.started_at?.toISOString() === started_at && was === health && !loop && !room
  if (same && instance.restart_count === restart_count) return
  const reason = room ? { status_reason: room.status_reason } : {}
  const recorded = await record(one, { restart_count, health, started_at, ...loop, ...reason })
  if (recorded && health === 'unhealthy' && was !== health)
    await note(instance, 'unhealthy', `The ${kind.title} fails its health check`, seen)
  if (recorded && health === 'healthy' && was === 'unhealthy')
    await note(instance, 'healthy', `The ${kind.title} passes its health check again`, seen)
  if (recorded && room) await note(instance, room.entry, room.message, seen)
  if (restart_count > instance.restart_count) {
    const message = `The ${kind.title} ended, and its restart policy started it again`
    await note(instance, 'restarted', message, seen)
  } else if (recorded && isNewRun(instance, seen)) {
    const message = `The ${kind.title} was started again with its engine or its machine`
    await note(instance, 'restarted', message, seen)
  }
}

// The start of a run that its host has read twice may differ by less.
const sameRunMs = 1_000

/** Whether it runs since later than is recorded: neither an operation nor its restart policy has started it. */
const isNewRun = ({ started_at: before }: InstanceDocument, { started_at }: ObservedInstance): boolean =>
  before !== null && started_at !== null && Date.parse(started_at) - before.getTime() > sameRunMs

/** What a crash loop, or its end, changes in the record; null: nothing. */
function loopOf({ instance, kind }: Instance, seen: ObservedInstance): object | null {
  const wasLooping = isLoopReason(instance.status_reason)
  if (!seen.crash_looping) return wasLooping ? { status_reason: null, exit_code: null } : null
  const exit_code = seen.exit_code ?? instance.exit_code
  const status_reason = loopReason(kind.title, exit_code)
  return status_reason === instance.status_reason ? null : { status_reason, exit_code }
}

/** What is told when an instance begins or ends to be without room; null: nothing. */
function roomOf({ instance, kind }: Instance, seen: ObservedInstance) {
  const was = roomlessBy(kind.title, instance.status_reason)
  const is = roomlessAs(kind.title, seen)
  if (was?.reason === is?.reason) return null
  if (is) return { entry: is.entry, message: is.message, status_reason: is.reason }
  return { entry: 'went_on', message: was?.after ?? '', status_reason: null }
}

/** `none` for a kind without health checks. */
const healthOf = (instance: InstanceDocument): unknown => ('health' in instance ? instance.health : 'none')

const stopped = { status: 'stopped', desired_state: 'stopped', runs_with: null }

async function recordDone(one: Instance, seen: ObservedInstance): Promise<void> {
  const { exit_code } = seen
  if (!(await record(one, { ...stopped, exit_code }))) return
  await note(one.instance, 'exited', `The ${one.kind.title} ended with exit code ${exit_code}`, seen)
}

/** Its host stopped it for good: started again, it would only be stopped again. */
async function recordFull(one: Instance, seen: ObservedInstance): Promise<void> {
  const status_reason = `The ${one.kind.title} was stopped: outside its disks it had written more than its disk_gib`
  if (!(await record(one, { ...stopped, exit_code: seen.exit_code, status_reason }))) return
  await note(one.instance, 'disk_full', status_reason, seen)
}

async function repair(one: Instance, seen: ObservedInstance | undefined): Promise<void> {
  const { kind, instance } = one
  const { _id: id, tenant_id: tenantId } = instance
  const { title, resource } = kind
  const row = rowOf(instance)
  if (row.waits || (row.count >= repairsAtOnce && (await isRepairing(tenantId)))) {
    const exit_code = seen?.exit_code ?? instance.exit_code
    const status_reason = loopReason(title, exit_code)
    if (status_reason !== instance.status_reason) await record(one, { status_reason, exit_code })
    return
  }
  try {
    const { operation } = await acceptVerb({ resource, tenantId, requestedBy: null, id, verb: 'repair' })
    const what = !seen
      ? `The ${title} was missing on its host`
      : seen.state === 'created'
        ? `The ${title} had lost its network or never started`
        : `The ${title} had ${endOf(seen)}`
    await countRepair(one, row)
    await note(instance, 'repair', `${what}; the platform is starting it again`, seen, {
      operation_id: operation._id,
    })
  } catch (error) {
    // Another operation has begun since: leave the instance to it.
    if (!(error instanceof OperationInProgress) && !(error instanceof StateConflict)) throw error
  }
}

const byItself: Record<NonNullable<ObservedInstance['ended_by']>, string> = {
  shut_down: 'shut itself down',
  restarted: 'restarted itself',
  panicked: 'ended with a kernel panic',
  killed: 'been killed',
  disk_full: 'written more than its disk_gib',
}

function endOf({ exit_code, ended_by }: ObservedInstance): string {
  if (exit_code !== null) return `ended (exit code ${exit_code})`
  return ended_by ? byItself[ended_by] : 'ended without an exit code; it may have been killed'
}

/** Updates the record, unless it has changed or an operation has begun since it was read. */
async function record({ kind, instance }: Instance, set: object): Promise<boolean> {
  const { _id, tenant_id, updated_at } = instance
  const changed = await kind.model.updateOne(
    { _id, tenant_id, operation_id: null, updated_at },
    { $set: set },
  )
  return changed.modifiedCount === 1
}

const note = (
  { _id, tenant_id }: InstanceDocument,
  kind: string,
  message: string,
  seen: ObservedInstance | undefined,
  more: Record<string, unknown> = {},
): Promise<void> => {
  const data = {
    exit_code: seen?.exit_code ?? null,
    oom_killed: seen?.oom_killed ?? false,
    ...(seen?.ended_by ? { ended_by: seen.ended_by } : {}),
    ...more,
  }
  return noteActivity({ tenant_id, resource_id: _id, kind, message, data })
}
