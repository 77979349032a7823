/** Normalizes RFC 3339 to UTC with nine decimals. Such times sort as strings. */
export function exactTime(time: string): string {
  const [, seconds, decimals = '', zone] = /^(.{19})(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$/i.exec(time) ?? []
  const utc = new Date(`${seconds}${zone}`).toISOString() // a RangeError if it is not a time
  return `${utc.slice(0, 19)}.${decimals.slice(0, 9).padEnd(9, '0')}Z`
}

/** Converts to the engine's format: seconds with nine decimals. */
export const engineTime = (time: string): string =>
  `${Math.floor(Date.parse(`${time.slice(0, 19)}Z`) / 1000)}.${time.slice(20, 29)}`

const perMs = 1_000_000

/**
 * A clock for entries that sort by time: each time is later than the last one, in UTC with nine decimals. `last` is a time
 * as it returns them; null if there is none.
 */
export function makeTimes(last: string | null): () => string {
  let ms = last === null ? 0 : Date.parse(`${last.slice(0, 23)}Z`)
  let ns = last === null ? 0 : Number(last.slice(23, 29))
  // Most times are of the same millisecond as the one before.
  let [known, prefix] = [-1, '']
  return () => {
    const now = Date.now()
    ns = now > ms ? 0 : ns + 1
    ms = Math.max(now, ms)
    if (ns === perMs) [ms, ns] = [ms + 1, 0]
    if (ms !== known) [known, prefix] = [ms, new Date(ms).toISOString().slice(0, 23)]
    return `${prefix}${String(ns).padStart(6, '0')}Z`
  }
}
