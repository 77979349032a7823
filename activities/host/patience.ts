import { setTimeout as delay } from 'node:timers/promises'
import { BackupFailed } from '../../drivers/errors.ts'
import { targetFailedCode } from '../../lib/backup-protocol.ts'

/** A part is tried again after these times. */
const waitsMs = [1_000, 5_000, 15_000, 30_000, 60_000]

/** Repeats work after these times while its error may pass. Throws the last one. */
export async function again<T>(
  work: () => Promise<T>,
  {
    signal,
    waits,
    passes,
  }: { signal: AbortSignal; waits: readonly number[]; passes: (error: Error) => boolean },
): Promise<T> {
  for (const waitMs of waits) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof Error && passes(error))) throw error
      await delay(waitMs, undefined, { signal })
    }
  }
  return work()
}

/**
 * Outlasts a tenant's bucket that is away for a minute or two. The host waits, since it has the part and the API has those of
 * all hosts. Throws BackupFailed if the bucket stays away.
 */
export const patiently = <T>(
  work: () => Promise<T>,
  { signal, waits = waitsMs }: { signal: AbortSignal; waits?: readonly number[] },
): Promise<T> =>
  again(work, { signal, waits, passes: isAway }).catch((error: unknown) => {
    throw error instanceof Error && isAway(error) ? new BackupFailed(error.message, error) : error
  })

/** Whether a retry may help. */
export const mayPass = (error: Error): boolean => Reflect.get(error, 'permanent') === false

const isAway = (error: Error): boolean => Reflect.get(error, 'code') === targetFailedCode && mayPass(error)
