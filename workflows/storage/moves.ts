import { ActivityFailure, ApplicationFailure, isCancellation, sleep } from '@temporalio/workflow'
import type { Work } from '../durable.ts'
import { on } from '../hosts.ts'

// Each try starts a new server: the former one may have died with its host. A killed worker costs one try.
const tries = 5
const betweenTriesMs = 1_000
// After this the source stops serving, and the copy is retried.
const servedSec = 24 * 3600

/** A disk or machine that nothing uses, with its source and target host. */
export interface Moving {
  id: string
  name: string
  from: string
  to: string
}

/**
 * Copies a disk to another host and compares it byte for byte. The source's copy is unchanged and stays authoritative
 * until the caller records the new host. A host removes an abandoned copy at its next report.
 */
export async function moveDisk(
  work: Pick<Work<unknown>, 'undo' | 'progress'>,
  { id, name, from, to }: Moving,
  limits: { bandwidth_mib_per_sec: number | null },
): Promise<void> {
  work.undo(() => on(from).stopServingDiskOnHost(id))
  await on(from).releaseDiskOnHost(id)
  await copy(work, `disk ${name}`, {
    serve: () => on(from).serveDiskOnHost(id, servedSec),
    pull: () => on(to, pulling).pullDiskOnHost(id, limits),
  })
  await on(from).stopServingDiskOnHost(id)
}

/** Copies a machine that does not run: the root disk and, if it is suspended, the memory. */
export async function moveMachine(
  work: Pick<Work<unknown>, 'undo' | 'progress'>,
  { id, name, from, to }: Moving,
): Promise<void> {
  work.undo(() => on(from).stopServingMachineOnHost(id))
  await copy(work, name, {
    serve: () => on(from).serveMachineOnHost(id, servedSec),
    pull: () => on(to, pulling).pullMachineOnHost(id),
  })
  await on(from).stopServingMachineOnHost(id)
}

async function copy(
  { progress }: Pick<Work<unknown>, 'progress'>,
  what: string,
  { serve, pull }: Record<'serve' | 'pull', () => Promise<unknown>>,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    progress(`copying ${what}`)
    await serve()
    try {
      await pull()
      return
    } catch (error) {
      if (isCancellation(error) || isPermanent(error)) throw error
      if (attempt === tries)
        throw ApplicationFailure.nonRetryable(
          `${capital(what)} could not be copied to the new host`,
          'copy_failed',
        )
      await sleep(betweenTriesMs)
    }
  }
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1)

const pulling = {
  startToCloseTimeout: `${servedSec} s`,
  // `copy` retries, since the source has to serve again first.
  retry: { maximumAttempts: 1 },
} as const

const isPermanent = (error: unknown): boolean =>
  error instanceof ActivityFailure &&
  error.cause instanceof ApplicationFailure &&
  error.cause.nonRetryable === true
