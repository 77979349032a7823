import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { beginDueRun, dueSchedules } from '../models/ai/run-schedules.ts'
import { archivesToLookAt, lookAtArchive, pauseSilentArchives } from '../models/deploy/archive-bases.ts'
import { tidyArchive, untidyArchives } from '../models/deploy/archive-segments.ts'
import {
  beginDueBackup,
  beginVerification,
  removeOldBackups,
  unverifiedBackups,
} from '../models/deploy/backup-acceptance.ts'
import { dueBackups, untidyBackups } from '../models/deploy/backups.ts'
import { dueTasks } from '../models/deploy/scheduled-tasks.ts'
import { beginDue } from '../models/deploy/task-runs.ts'
import { beginDueSnapshot, dueSnapshots } from '../models/retrieval/snapshots.ts'

const everyMs = 1_000
const batch = 100
const looks = 2

/** Begins what is due: runs of scheduled tasks and of AI workflows, backups and the removal of old ones, snapshots, bases of archives, and looks at old backups. Every worker looks; each begins once. */
export function startTaskClock(log: Logger): { stop(): Promise<void> } {
  const stopping = new AbortController()

  async function begin<Due extends { _id: string }>(
    what: string,
    due: Due[],
    one: (due: Due) => Promise<void>,
  ) {
    for (const each of due)
      await one(each).catch((error: unknown) => {
        log.warn({ err: error, id: each._id }, `${what} was not begun`)
      })
  }

  const running = (async () => {
    while (!stopping.signal.aborted) {
      try {
        await begin('a scheduled task', await dueTasks(batch), beginDue)
        await begin('a scheduled run of an AI workflow', await dueSchedules(batch), beginDueRun)
        await begin('a backup', await dueBackups(batch), beginDueBackup)
        await begin('the removal of old backups', await untidyBackups(batch), removeOldBackups)
        await begin('a snapshot of a retrieval store', await dueSnapshots(batch), beginDueSnapshot)
        await begin('a base backup of an archive', await archivesToLookAt(batch), lookAtArchive)
        await begin('the tidying of an archive', await untidyArchives(batch), tidyArchive)
        await pauseSilentArchives(batch)
        // Few at a time: each is read whole.
        await begin('the verification of a backup', await unverifiedBackups(looks), beginVerification)
      } catch (error) {
        // MongoDB is away; the next round retries.
        log.warn({ err: error }, 'due work could not be read')
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
