import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { dueTasks, type ScheduledTaskDocument } from '../models/deploy/scheduled-tasks.ts'
import { beginDue } from '../models/deploy/task-runs.ts'

const everyMs = 1_000
const batch = 100

/** Begins the runs of scheduled tasks that are due. Every worker looks; a run begins once. */
export function startTaskClock(log: Logger): { stop(): Promise<void> } {
  const stopping = new AbortController()
  const begin = (task: ScheduledTaskDocument): Promise<void> =>
    beginDue(task).catch((error: unknown) => {
      log.warn({ err: error, task_id: task._id }, 'a scheduled task was not begun')
    })
  const running = (async () => {
    while (!stopping.signal.aborted) {
      try {
        for (const task of await dueTasks(batch)) await begin(task)
      } catch (error) {
        // MongoDB is away; the next round retries.
        log.warn({ err: error }, 'scheduled tasks were not looked for')
      }
      await setTimeout(everyMs, null, { signal: stopping.signal }).catch(() => {})
    }
  })()
  return {
    async stop() {
      stopping.abort()
      await running
    },
  }
}
