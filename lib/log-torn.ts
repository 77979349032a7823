// An engine that is killed while it writes an entry, or whose disk is full then, leaves the beginning of the entry. On a full disk
// it drops all entries from there until it has room (moby: daemon/logger/copier.go only logs the error). The next entry that it
// writes follows on the same line.

/** Where the beginning of an entry stands without its rest. */
export interface Torn {
  from: number
  to: number
}

// Quotes within an entry are escaped, so nothing else looks like the beginning of one.
const begins = '{"log":"'
const inLine = /[^\n]\{"log":"/

/** The first torn entry in these bytes of a log file; null if there is none. */
export function tornIn(bytes: Buffer): Torn | null {
  const found = inLine.exec(bytes.toString('latin1'))
  if (!found) return null
  return { from: bytes.lastIndexOf('\n', found.index) + 1, to: found.index + 1 }
}

/** The entry that follows a torn one on its line; null if there is none. */
export function afterTorn(line: string): string | null {
  const at = line.lastIndexOf(begins)
  return at > 0 ? line.slice(at) : null
}
