import type { FoundSwarmService } from '../swarms.ts'

/** A task as the engine tells of it. */
export interface Task {
  ServiceID: string
  CreatedAt: string
  Spec: { ContainerSpec: { Image: string; Labels?: Record<string, string> } }
  Status: {
    State: string
    Timestamp: string
    Err?: string
    ContainerStatus?: { ContainerID?: string; ExitCode?: number }
  }
}

const ended = new Set(['complete', 'shutdown', 'failed', 'rejected', 'remove', 'orphaned'])
const failed = new Set(['failed', 'rejected', 'complete'])

/** What a service's newest task does, and how many have failed since `since` (ms). The task before says why. */
export function newestTask(tasks: Task[], since: number): Pick<FoundSwarmService, 'task' | 'failures'> {
  const newestFirst = tasks.toSorted((a, b) => Date.parse(b.CreatedAt) - Date.parse(a.CreatedAt))
  const failures = newestFirst.filter(
    ({ Status, CreatedAt }) => failed.has(Status.State) && Date.parse(CreatedAt) >= since - 1,
  )
  const [task] = newestFirst
  if (!task) return { task: null, failures: 0 }
  const { State, Timestamp, ContainerStatus } = task.Status
  const runs = State === 'running'
  const last = ended.has(State) ? task : failures[0]
  return {
    failures: failures.length,
    task: {
      begun: runs || State === 'starting' || (ended.has(State) && ContainerStatus?.ExitCode !== undefined),
      completed: State === 'complete',
      rejected: last?.Status.State === 'rejected',
      state: runs ? 'running' : ended.has(State) ? 'ended' : 'starting',
      reason: last ? reasonOf(last) : null,
      exit_code: last?.Status.ContainerStatus?.ExitCode ?? null,
      container_id: ContainerStatus?.ContainerID ?? null,
      started_at: runs ? Timestamp : null,
    },
  }
}

/** Why a task does not run, in words for the tenant. */
export function reasonOf({ Spec, Status }: Task): string {
  const { Err = '', ContainerStatus } = Status
  const image = Spec.ContainerSpec.Image
  if (/no such image|not found: manifest|manifest unknown|pull access denied|does not exist/i.test(Err))
    return `The image ${image} does not exist, or access to it is denied`
  if (/unhealthy/i.test(Err)) return 'Its health check failed'
  if (/port is already allocated|address already in use/i.test(Err)) return 'Its port on the worker is taken'
  if (/no suitable node/i.test(Err)) return 'Its worker does not accept it'
  if (/not a directory/i.test(Err)) return 'One of its mount paths is below a file of its image'
  if (/executable file not found|no such file or directory|permission denied/i.test(Err))
    return 'Its command could not be started'
  const code = ContainerStatus?.ExitCode
  if (code === 137) return 'It was killed, probably for using more memory than it may'
  if (code !== undefined) return `Its command ended with exit code ${code}`
  return 'It could not be started'
}
