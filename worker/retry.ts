import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'

const firstMs = 200
const lastMs = 10_000

/** Waits between retries: doubles each time, up to 10 s, until `reset`. */
export function makeBackoff() {
  let nextMs = firstMs
  return {
    reset: (): void => {
      nextMs = firstMs
    },
    /** Ends early when the signal aborts. */
    async wait(signal: AbortSignal): Promise<void> {
      const ms = nextMs
      nextMs = Math.min(nextMs * 2, lastMs)
      await delay(ms, undefined, { signal }).catch(() => undefined)
    },
  }
}

interface Patience {
  signal: AbortSignal
  log: Pick<Logger, 'warn'>
  /** Errors that no retry can fix. */
  hopeless?: (error: unknown) => boolean
}

/** Retries until it works. Throws hopeless errors, and the signal's reason. */
export async function untilItWorks<T>(
  what: string,
  work: () => Promise<T>,
  { signal, log, hopeless = () => false }: Patience,
): Promise<T> {
  const backoff = makeBackoff()
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (hopeless(error)) throw error
      log.warn({ err: error }, `${what} failed; trying again`)
    }
    await backoff.wait(signal)
    signal.throwIfAborted()
  }
}
