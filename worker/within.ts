import { setTimeout as delay } from 'node:timers/promises'

/** Waits for `work`, at most this long. Returns whether it has ended. Throws what it throws until then. */
export async function endsWithin(ms: number, work: Promise<unknown>): Promise<boolean> {
  const ended = new AbortController()
  try {
    return await Promise.race([
      work.then(() => true),
      delay(ms, false, { signal: ended.signal }).catch(() => false), // nobody waits for it any more
    ])
  } finally {
    ended.abort()
  }
}
