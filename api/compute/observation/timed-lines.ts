import type { LogLine } from '../../../lib/host-protocol.ts'
import { lastLinesBytes, LastKept } from '../../../lib/last-kept.ts'

/** A line as clients get it, with the time by which the lines of all replicas are ordered. */
export interface TimedLine {
  time: string
  text: string
  /** The lines of one stream of a replica are in order of time. Absent: the replica has one stream. */
  stream?: LogLine['stream']
}

const longestBatch = 1_000
const largestBatchBytes = 256 * 1024

const sizeOf = ({ text }: TimedLine): number => Buffer.byteLength(text)

/** Lines in batches that are sent at once. */
function* inBatches(lines: Iterable<TimedLine>): Generator<TimedLine[]> {
  const batch = new Batch()
  for (const line of lines) if (batch.add(line)) yield batch.take()
  if (batch.count) yield batch.take()
}

class Batch {
  #lines: TimedLine[] = []
  #bytes = 0

  get count(): number {
    return this.#lines.length
  }

  /** True if it is full. */
  add(line: TimedLine): boolean {
    this.#lines.push(line)
    this.#bytes += sizeOf(line)
    return this.#lines.length >= longestBatch || this.#bytes >= largestBatchBytes
  }

  take(): TimedLine[] {
    const lines = this.#lines
    this.#lines = []
    this.#bytes = 0
    return lines
  }
}

/** The last lines, in batches. Reads all of them before. */
export async function lastOf(
  batches: AsyncIterable<TimedLine[]>,
  count: number,
  bytes = lastLinesBytes,
): Promise<Generator<TimedLine[]>> {
  const kept = new LastKept<TimedLine>({ count, bytes }, sizeOf)
  for await (const lines of batches) for (const line of lines) kept.add(line)
  return inBatches(kept.taken())
}

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

  const batch = new Batch()
  let open = cursors
  for (;;) {
    const isFull = open.every(lineAt)
    if (!isFull) {
      if (batch.count) yield batch.take()
      const filled = await Promise.all(open.map(fill))
      open = open.filter((_, i) => filled[i])
    }
    const [first] = open.toSorted((one, other) => order(lineAt(one), lineAt(other)))
    const line = first && lineAt(first)
    if (!line) return
    first.at++
    if (batch.add(line)) yield batch.take()
  }
}

// The engine reads each stream of a container by itself, so that a line of one can be written after later ones of the
// other: after this many at most.
export const mostOvertaking = 100
/** Fewer lines are held if they are long. */
const mostHeldBytes = 1024 ** 2

/** Puts the lines of a replica's streams in order of time. */
export async function* streamsInOrder(batches: AsyncIterable<TimedLine[]>): AsyncGenerator<TimedLine[]> {
  let held: TimedLine[] = []
  for await (const lines of batches) {
    held = [...held, ...lines].toSorted(order)
    const ready = held.length - heldBack(held)
    if (ready > 0) yield held.splice(0, ready)
  }
  yield held
}

function heldBack(lines: TimedLine[]): number {
  let bytes = 0
  const newest = lines.slice(-mostOvertaking).toReversed()
  const tooMany = newest.findIndex((line) => (bytes += sizeOf(line)) > mostHeldBytes)
  return tooMany < 0 ? newest.length : tooMany
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
