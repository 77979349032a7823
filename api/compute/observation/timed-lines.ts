import type { LogLine } from '../../../lib/host-protocol.ts'

/** A line as clients get it, with the time by which the lines of all replicas are ordered. */
export interface TimedLine {
  time: string
  text: string
  /** The lines of one stream of a replica are in order of time. Absent: the replica has one stream. */
  stream?: LogLine['stream']
}

const longestBatch = 1_000

/** Joins sources, each of which is in order of time, in batches. Of lines of one moment, those of the earlier source come first. */
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

// The engine reads each stream of a container by itself, so that a line of one can be written after later ones of the
// other: after this many at most.
export const mostOvertaking = 100

/** Puts the lines of a replica's streams in order of time. */
export async function* streamsInOrder(batches: AsyncIterable<TimedLine[]>): AsyncGenerator<TimedLine[]> {
  let held: TimedLine[] = []
  for await (const lines of batches) {
    held = [...held, ...lines].toSorted(order)
    if (held.length > mostOvertaking) yield held.splice(0, held.length - mostOvertaking)
  }
  yield held
}

function order(one: TimedLine | undefined, other: TimedLine | undefined): number {
  const [its, others] = [one?.time ?? '', other?.time ?? '']
  if (its === others) return 0
  return its < others ? -1 : 1
}

/** The lines as they are sent. */
export async function* textOf(batches: AsyncIterable<TimedLine[]>): AsyncGenerator<Buffer> {
  for await (const lines of batches) yield Buffer.from(lines.map(({ text }) => `${text}\n`).join(''))
}
