import { setTimeout as delay } from 'node:timers/promises'

// For what never comes, not a measure of speed: on a busy machine what takes a second may take twenty.
const patienceMs = 240_000

/** What took long already is looked at less often: looking costs the platform a request, and what it waits for the time. */
const gapMs = (waitedMs: number): number => Math.min(250, Math.max(20, waitedMs / 40))

type Falsy = undefined | null | false

/**
 * Waits until `check` holds: until it returns something other than undefined, null or false, and does not
 * throw. Returns that. When the time is up, fails with what it saw last.
 */
export async function eventually<T>(
  check: () => Falsy | T | Promise<Falsy | T>,
  { withinMs = patienceMs }: { withinMs?: number } = {},
): Promise<T> {
  const begun = Date.now()
  for (;;) {
    let seen: unknown
    try {
      const value = await check()
      if (value !== undefined && value !== null && value !== false) return value
      seen = value
    } catch (error) {
      seen = error
    }
    const waitedMs = Date.now() - begun
    if (waitedMs > withinMs) throw new Error(`not so within ${withinMs} ms: ${String(seen)}`, { cause: seen })
    await delay(gapMs(waitedMs))
  }
}
