import { ApplicationFailure } from '@temporalio/activity'
import type { PlaceOnHost } from '../../lib/deploy-protocol.ts'
import type { TaskCommandResult } from '../../drivers/swarms.ts'
import { findApplication } from '../../models/deploy/applications.ts'
import { replicasOfApplication } from '../../models/deploy/replicas.ts'
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
  /** Chooses a replica of the release that serves, for good. Throws `not_running`. */
  async beginTaskRun(id: string): Promise<TaskRunFacts> {
    const run = await TaskRun.findById(id).setOptions(everyTenant).lean()
    const application = run && (await findApplication(run.app_id))
    const replicas = application?.current_id ? await replicasOfApplication(application) : []
    const replica =
      replicas.find(({ node }) => node === run?.worker) ??
      replicas.find(({ deployment_id }) => deployment_id === application?.current_id)
    if (!run || !replica) throw ApplicationFailure.nonRetryable('The application does not run', 'not_running')
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
