import { ApplicationFailure } from '@temporalio/activity'
import type { PlaceOnHost } from '../../lib/deploy-protocol.ts'
import type { TaskCommandResult } from '../../drivers/swarms.ts'
import { taskOwnerKind } from '../../models/deploy/task-owners.ts'
import { TaskRun } from '../../models/deploy/task-runs.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

/** What a workflow knows of a run of a scheduled task. */
export interface TaskRunFacts {
  replica: PlaceOnHost
  command: string
  timeout_sec: number
}

/** Activities of scheduled tasks: short reads and writes of MongoDB. */
export const makeTaskRunActivities = () => ({
  /** Chooses a replica of the release that serves, or the container, for good. Throws `not_running`. */
  async beginTaskRun(id: string): Promise<TaskRunFacts> {
    const run = await TaskRun.findById(id).setOptions(everyTenant).lean()
    const places = run ? await taskOwnerKind(run.owner_kind).places(run.app_id, run.container ?? null) : []
    const replica = places.find(({ node }) => node === run?.worker) ?? places[0]
    if (!run || !replica)
      throw ApplicationFailure.nonRetryable(
        `The ${run?.owner_kind ?? 'application'} does not run`,
        'not_running',
      )
    const { command, timeout_sec } = run
    const begun = { started_at: run.started_at ?? new Date(), worker: replica.node }
    await TaskRun.updateOne({ _id: id }, { $set: begun }).setOptions(everyTenant)
    return { replica, command, timeout_sec }
  },

  async endTaskRun(
    id: string,
    result: Pick<TaskCommandResult, 'exit_code' | 'output'> | null,
  ): Promise<void> {
    const of = result ? { exit_code: result.exit_code, output: result.output } : {}
    await TaskRun.updateOne({ _id: id }, { $set: { ...of, ended_at: new Date() } }).setOptions(everyTenant)
  },
})

export type TaskRunActivities = ReturnType<typeof makeTaskRunActivities>
