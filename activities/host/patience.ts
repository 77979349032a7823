import { setTimeout as delay } from 'node:timers/promises'
import { BackupFailed } from '../../drivers/errors.ts'
import { targetFailedCode } from '../../lib/backup-protocol.ts'

/** A part is tried again after these times. */
const waitsMs = [1_000, 5_000, 15_000, 30_000, 60_000]

/**
 * Outlasts a tenant's bucket that is away for a minute or two. The host waits, since it has the part and the API has those of
 * all hosts. Throws BackupFailed if the bucket stays away.
 */
export async function patiently<T>(
  work: () => Promise<T>,
  { signal, waits = waitsMs }: { signal: AbortSignal; waits?: readonly number[] },
): Promise<T> {
  for (const waitMs of waits) {
    try {
      return await work()
    } catch (error) {
      if (!isAway(error)) throw error
      await delay(waitMs, undefined, { signal })
    }
  }
  return work().catch((error: unknown) => {
    throw isAway(error) ? new BackupFailed(error.message, error) : error
  })
}

const isAway = (error: unknown): error is Error =>
  error instanceof Error &&
  Reflect.get(error, 'code') === targetFailedCode &&
  Reflect.get(error, 'permanent') === false
