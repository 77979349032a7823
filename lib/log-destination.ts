import { pino } from 'pino'

/** Kept in memory while the disk has no room, in bytes. */
const heldBytes = 1024 ** 2
const againMs = 1_000

type Destination = ReturnType<typeof pino.destination>

/**
 * A descriptor or file for a log. Its process goes on while the disk is full: lines wait in memory, and those beyond 1 MiB are
 * dropped. Pino by itself would end the process with the first line.
 */
export function patientDestination({ dest }: { dest: number | string }): Destination {
  const destination = pino.destination({ dest, sync: true, maxLength: heldBytes })
  let timer: NodeJS.Timeout | undefined
  const tryAgain = (): void => {
    timer = undefined
    destination.write('') // and what is held; its flushSync would block until the disk has room
  }
  destination.removeAllListeners('error')
  destination.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return // nobody reads it any more
    if (error.code !== 'ENOSPC' && error.code !== 'EDQUOT') throw error
    timer ??= setTimeout(tryAgain, againMs).unref()
  })
  return destination
}
