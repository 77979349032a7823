import { ActivityFailure, ApplicationFailure, proxyLocalActivities, sleep } from '@temporalio/workflow'
import type { BackupActivities, ReadingPlace } from '../../activities/deploy/backups.ts'
import { durable, type Work } from '../durable.ts'
import { on } from '../hosts.ts'

const platform = proxyLocalActivities<BackupActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** A large database over a slow line. */
export const copying = { startToCloseTimeout: '1 day' } as const

async function dropCopy(id: string): Promise<void> {
  while (await platform.dropCopy(id)) {}
}

// The longest wait is another copy's whole time, so the looks become rare.
const firstWaitMs = 500
const longestWaitMs = 10_000

async function takeRoom(id: string): Promise<ReadingPlace> {
  for (let waitMs = firstWaitMs; ; waitMs = Math.min(waitMs * 2, longestWaitMs)) {
    const place = await platform.placeScratch(id)
    if (place !== 'waits') return place
    await sleep(waitMs)
  }
}

/** The code of the fault of an activity. */
export const typeOf = (error: unknown): string | null | undefined =>
  error instanceof ActivityFailure && error.cause instanceof ApplicationFailure ? error.cause.type : null

/** Restores the copy into a scratch engine and compares it; reads it in full where that is not possible. */
async function verify({ id, undo, progress }: Work<unknown>): Promise<void> {
  progress('waiting for room on a worker')
  undo(() => platform.releaseScratch(id))
  const { host_id, machine_id, deploy_server_id, image } = await takeRoom(id)
  undo(() => on(host_id).removeScratchOnHost(machine_id, id))
  let restores = image !== null
  if (image !== null)
    try {
      await on(host_id).provideImageOnHost(machine_id, image)
    } catch (error) {
      if (typeOf(error) !== 'image_unavailable') throw error
      await platform.releaseScratch(id)
      restores = false
    }
  progress(restores ? 'restoring the backup into a scratch engine' : 'reading the backup in full')
  await platform.noteVerified(id, await on(host_id, copying).verifyOnHost(deploy_server_id, id))
}

/** Copies a database's data out, and reads the copy back. It succeeds only then. */
export const createBackupExecution = durable(
  async (work) => {
    const { id, undo, progress, afterwards } = work
    undo(() => dropCopy(id))
    const { host_id, machine_id, deploy_server_id, service_id } = await platform.beginBackup(id)
    progress('copying the data out')
    undo(() => on(host_id).endDumpOnHost(machine_id, service_id, id))
    await on(host_id, copying).dumpOnHost(deploy_server_id, id)
    await verify(work)
    afterwards(() => platform.removeOldBackupsOf(id))
    return { status: 'succeeded' }
  },
  { onFailure: 'failed', onCancel: 'cancelled' },
)

/** Reads a copy back again. */
export const verifyBackupExecution = durable(async (work) => {
  try {
    await verify(work)
    return { status: 'succeeded' }
  } catch (error) {
    if (typeOf(error) !== 'backup_damaged' || !(error instanceof Error)) throw error
    await platform.releaseScratch(work.id)
    return {
      status: 'damaged',
      status_reason: error.cause instanceof Error ? error.cause.message : error.message,
    }
  }
})

export const deleteBackupExecution = durable(
  async ({ id, progress }) => {
    progress('removing the copy')
    await dropCopy(id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
