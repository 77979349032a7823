import { setTimeout as delay } from 'node:timers/promises'

/** The limit for what never comes, not a measure of speed: a busy machine can be twenty times slower. */
export const patienceMs = 480_000

/** Polls less often the longer it waits: each check costs the platform a request. */
const gapMs = (waitedMs: number): number => Math.min(250, Math.max(20, waitedMs / 40))

type Falsy = undefined | null | false

/**
 * Waits until `check` returns something other than undefined, null or false, and does not throw. Returns that value.
 * After `withinMs`, fails with the last result.
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
