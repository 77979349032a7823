/** Normalizes RFC 3339 to UTC with nine decimals. Such times sort as strings. */
export function exactTime(time: string): string {
  const [, seconds, decimals = '', zone] = /^(.{19})(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$/i.exec(time) ?? []
  const utc = new Date(`${seconds}${zone}`).toISOString() // a RangeError if it is not a time
  return `${utc.slice(0, 19)}.${decimals.slice(0, 9).padEnd(9, '0')}Z`
}

/** Converts to the engine's format: seconds with nine decimals. */
export const engineTime = (time: string): string =>
  `${Math.floor(Date.parse(`${time.slice(0, 19)}Z`) / 1000)}.${time.slice(20, 29)}`
