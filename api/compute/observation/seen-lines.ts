import { mostOvertaking, type TimedLine } from './timed-lines.ts'

// How far the lines of each replica are read.

export interface Seen {
  /** The time of the replica's newest line. Undefined: none is read. */
  until: (replica: string) => string | undefined
  /** The time from which to ask for more. Lines that were added are among them. */
  askFrom: (replica: string) => string | undefined
  /** Lines up to this time count as added. */
  begin: (replica: string, time: string) => void
  /** Returns those of these lines that were not added before. */
  add: (replica: string, lines: TimedLine[]) => TimedLine[]
}

// The same in time. Much more than a busy engine takes from one line to the next.
const mostOvertakingMs = 5_000

interface Read {
  first: string
  count: number
  /** The time of the last line of each stream. */
  until: Map<TimedLine['stream'], string>
}

export function makeSeen(): Seen {
  const known = new Map<string, Read>()

  function until(replica: string): string | undefined {
    const read = known.get(replica)
    return read && [read.first, ...read.until.values()].toSorted().at(-1)
  }

  return {
    until,

    askFrom(replica) {
      const read = known.get(replica)
      if (!read) return undefined
      const newest = until(replica) ?? ''
      const early = new Date(Date.parse(newest) - mostOvertakingMs).toISOString()
      return early > floorOf(read) ? early : floorOf(read)
    },

    begin: (replica, first) => void known.set(replica, { first, count: Infinity, until: new Map() }),

    add(replica, lines) {
      const [line] = lines
      if (!line) return []
      const read = known.get(replica) ?? { first: line.time, count: 0, until: new Map() }
      known.set(replica, read)
      const fresh = lines.filter(({ stream, time }) => time > (read.until.get(stream) ?? floorOf(read)))
      for (const { stream, time } of fresh) read.until.set(stream, time)
      read.count += fresh.length
      return fresh
    },
  }
}

/** For a stream that is not among the lines: what it has before them was not asked for. */
const floorOf = ({ first, count }: Read): string => (count < mostOvertaking ? '' : first)
