import { accessOf } from '../../lib/access-log.ts'
import { damaged, type Joiner, makeEntryReader } from '../compute/observation/log-lines.ts'

// Lines of access logs, as clients get them, in order over the replicas of a load balancer.

/** A line with the time by which the lines of all replicas are ordered. */
export interface TimedLine {
  time: string
  text: string
}

/** An AccessLine of lib/load-balancer-protocol.ts. `line`: as it is in the log of the replica on that host. */
export function accessLine(host_id: string, time: string, line: string): TimedLine {
  const entry = accessOf(line)
  return entry
    ? { time, text: JSON.stringify({ time, host_id, ...entry }) }
    : remarkOn(host_id, damaged, time)
}

/** In the place of lines that are missing. */
export const remarkOn = (host_id: string, missing: string, time = ''): TimedLine => ({
  time,
  text: JSON.stringify({ host_id, missing }),
})

/** Makes lines of the entries of one replica. A gap is an object with the field `missing`. */
export function makeAccessJoiner(host_id: string): Joiner<TimedLine[]> {
  const reader = makeEntryReader()
  let last = ''
  const remark = (missing: string): TimedLine => remarkOn(host_id, missing, last)
  return {
    push: (bytes) =>
      reader.push(bytes).map((entry) => {
        if (!entry) return remark(damaged)
        last = entry.time
        return accessLine(host_id, entry.time, entry.log)
      }),
    end: () => (reader.end() ? [remark(damaged)] : []),
    remark: (words) => [remark(words)],
  }
}

const longestBatch = 1_000

/** Joins sources, each of which is in order of time, in batches. */
export async function* inOrderOfTime(sources: AsyncIterable<TimedLine[]>[]): AsyncGenerator<TimedLine[]> {
  const cursors = sources.map((source) => ({
    source: source[Symbol.asyncIterator](),
    batch: [] as TimedLine[],
    at: 0,
  }))
  type Cursor = (typeof cursors)[number]
  const lineAt = ({ batch, at }: Cursor): TimedLine | undefined => batch[at]

  /** False at the end. */
  async function fill(cursor: Cursor): Promise<boolean> {
    while (!lineAt(cursor)) {
      const next = await cursor.source.next()
      if (next.done) return false
      cursor.batch = next.value
      cursor.at = 0
    }
    return true
  }

  let batch: TimedLine[] = []
  let open = cursors
  for (;;) {
    const isFull = open.every(lineAt)
    if (!isFull) {
      if (batch.length) yield batch
      batch = []
      const filled = await Promise.all(open.map(fill))
      open = open.filter((_, i) => filled[i])
    }
    const [first] = open.toSorted((one, other) => order(lineAt(one), lineAt(other)))
    const line = first && lineAt(first)
    if (!line) return
    first.at++
    batch.push(line)
    if (batch.length < longestBatch) continue
    yield batch
    batch = []
  }
}

const order = (one: TimedLine | undefined, other: TimedLine | undefined): number =>
  (one?.time ?? '') < (other?.time ?? '') ? -1 : 1
