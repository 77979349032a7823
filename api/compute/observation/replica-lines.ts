import { once } from 'node:events'
import { PassThrough, Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { isNativeError } from 'node:util/types'
import type { LogLine } from '../../../lib/host-protocol.ts'
import { NotFound, Unavailable } from '../../../lib/problem.ts'
import { away } from './log-archive.ts'
import type { LogsQuery } from './logs.ts'
import { makeSeen, type Seen } from './seen-lines.ts'
import { inOrderOfTime, lastOf, mostOvertaking, streamsInOrder, type TimedLine } from './timed-lines.ts'
import { wholeLines } from './whole-lines.ts'

// The log of something that has replicas, as their hosts have it: the lines of now, and new ones as they come.

/** Something with replicas, for who reads its lines. */
export interface Replicas {
  isThere: () => Promise<boolean>
  /** The names of the replicas of now. */
  names: () => Promise<string[]>
  /** Throws NotFound if the host does not have the replica yet, and Unavailable. */
  ask: (replica: string, query: LogsQuery) => Promise<Readable>
  lineOf: (replica: string, line: LogLine) => TimedLine
  /** In the place of lines that are missing. */
  remarkOn: (replica: string, words: string) => TimedLine
  /** The last lines of replicas that are no more. Absent: they are gone with their replica. */
  kept?: (replica: string, since: string) => Kept
}

export interface Kept {
  /** Older lines may be among them. */
  lines: AsyncIterable<TimedLine[]>
  /** Known when the lines are read. `later`: more will be kept. `away`: their host does not answer. */
  rest: () => 'none' | 'later' | 'away'
}

/**
 * The lines that these replicas have now, after a remark for each whose host does not answer; to follow, also those that
 * come later. Throws Unavailable if none answers.
 */
export async function replicaLines(
  replicas: Replicas,
  names: string[],
  query: LogsQuery,
  signal: AbortSignal,
): Promise<AsyncIterable<TimedLine[]>> {
  // Always in the same order, for lines of one moment.
  const { lines, seen } = await present(replicas, names.toSorted(), query)
  return query.follow ? inTurn(lines, followed(replicas, seen, query.since, signal)) : lines
}

/** `seen` gets each replica's lines as they are read. */
async function present(
  replicas: Replicas,
  names: string[],
  query: LogsQuery,
): Promise<{ lines: AsyncIterable<TimedLine[]>; seen: Seen }> {
  const seen = makeSeen()
  // Who asked for the last lines does not get all lines of a replica that could not say where its last one is.
  const now = query.lines === undefined || query.since ? undefined : new Date().toISOString()
  const silent = (name: string): void => void (now && !seen.until(name) && seen.begin(name, now))
  // Also without any lines wanted: following begins after the last ones.
  const lines = query.lines === undefined ? undefined : Math.max(query.lines, mostOvertaking)
  const answers = await Promise.allSettled(
    names.map(async (name) => {
      const answer = linesOf(replicas, name, await ask(replicas, name, { ...query, lines, follow: false }))
      const batches = noting(seen, name, answer)
      return streamsInOrder(query.follow ? untilBrokenOff(batches, () => silent(name)) : batches)
    }),
  )
  const there = answers.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const failure = answers.find((one) => one.status === 'rejected')
  if (there.length === 0 && failure) throw failure.reason
  const silenced = names.filter((_, i) => answers[i]?.status === 'rejected')
  silenced.forEach(silent)
  const merged = inOrderOfTime(there)
  // Before the answer to the client begins: what is written after that is new to a client that follows.
  const found = query.lines === undefined ? merged : await lastNow(merged, query.lines)
  return { lines: inTurn([silenced.map((name) => replicas.remarkOn(name, away))], found), seen }
}

/** Empty if the host does not have the replica yet. */
async function ask(replicas: Replicas, name: string, query: LogsQuery): Promise<Readable> {
  try {
    const answer = await replicas.ask(name, query)
    answer.on('error', () => {}) // its reader gets the error
    return answer
  } catch (error) {
    if (error instanceof NotFound) return Readable.from([])
    throw error
  }
}

async function* linesOf(
  { lineOf }: Replicas,
  replica: string,
  answer: Readable,
): AsyncGenerator<TimedLine[]> {
  for await (const texts of wholeLines(answer))
    yield texts.map((text) => lineOf(replica, JSON.parse(text) as LogLine))
}

/** What the replica's host has sent when it goes away: following asks it for the rest. */
async function* untilBrokenOff(
  batches: AsyncIterable<TimedLine[]>,
  onBrokenOff: () => void,
): AsyncGenerator<TimedLine[]> {
  try {
    yield* batches
  } catch (error) {
    if (!isBrokenOff(error)) throw error
    onBrokenOff()
  }
}

async function* noting(
  seen: Seen,
  name: string,
  batches: AsyncIterable<TimedLine[]>,
): AsyncGenerator<TimedLine[]> {
  for await (const lines of batches) {
    seen.add(name, lines)
    yield lines
  }
}

/** Throws Unavailable if a host goes away meanwhile. */
async function lastNow(batches: AsyncIterable<TimedLine[]>, count: number): Promise<Iterable<TimedLine[]>> {
  try {
    return await lastOf(batches, count)
  } catch (error) {
    throw isBrokenOff(error) ? new Unavailable('The host does not answer', error) : error
  }
}

type Some<T> = AsyncIterable<T> | Iterable<T>
async function* inTurn<T>(first: Some<T>, next: Some<T>): AsyncGenerator<T> {
  yield* first
  yield* next
}

// How soon a new replica is followed.
const lookEveryMs = 2_000
/** In batches of some 64 KiB, for a client that reads slowly. */
const mostWaiting = 16

/** New lines of all replicas as they come, also of those that come later, until the whole is gone. */
async function* followed(
  replicas: Replicas,
  seen: Seen,
  since: string | undefined,
  signal: AbortSignal,
): AsyncGenerator<TimedLine[]> {
  const lines = new PassThrough({ objectMode: true, highWaterMark: mostWaiting })
  const reading = new Map<string, Promise<void>>()
  const begunAt = new Date().toISOString()
  /** Those of now, and former ones whose last lines are not here yet. */
  const known = new Set<string>()
  const missing = new Set<string>()

  const send = async (batch: TimedLine[]): Promise<void> => {
    if (!lines.write(batch)) await once(lines, 'drain', { signal })
  }

  async function sendFresh(name: string, batches: AsyncIterable<TimedLine[]>): Promise<void> {
    for await (const batch of batches) {
      const fresh = seen.add(name, batch)
      if (fresh.length) await send(fresh)
    }
  }

  /** Until the host ends its answer or goes away: the next look asks again. */
  async function read(name: string): Promise<void> {
    const answer = await ask(replicas, name, { follow: true, since: later(seen.askFrom(name), since) })
    await sendFresh(name, linesOf(replicas, name, answer))
  }

  /** What a former replica wrote after its last line here: its host ended its answer before. */
  async function readKept(name: string): Promise<void> {
    const from = seen.until(name) ?? since ?? begunAt
    seen.begin(name, from)
    const kept = replicas.kept?.(name, from)
    if (kept) await sendFresh(name, kept.lines)
    const rest = kept?.rest() ?? 'none'
    if (rest === 'none') known.delete(name)
    if (rest !== 'away' || missing.has(name)) return
    missing.add(name)
    await send([replicas.remarkOn(name, away)])
  }

  function failed(error: unknown): void {
    const isToBeTriedAgain = error instanceof Unavailable || isBrokenOff(error)
    if (!signal.aborted && !isToBeTriedAgain) lines.destroy(error as Error)
  }

  const begin = (name: string, work: Promise<void>): void => {
    const ended = work.catch(failed).finally(() => reading.delete(name))
    reading.set(name, ended)
  }

  async function look(): Promise<void> {
    while (!signal.aborted && (await replicas.isThere())) {
      const names = await replicas.names()
      for (const name of names) known.add(name)
      for (const name of known)
        if (!reading.has(name)) begin(name, names.includes(name) ? read(name) : readKept(name))
      await delay(lookEveryMs, undefined, { signal }).catch(() => undefined)
    }
    await Promise.all(reading.values())
  }

  look().then(
    () => lines.end(),
    (error: unknown) => lines.destroy(error as Error),
  )
  yield* lines as AsyncIterable<TimedLine[]>
}

function later(one: string | undefined, other: string | undefined): string | undefined {
  if (one === undefined || other === undefined) return one ?? other
  return Date.parse(one) > Date.parse(other) ? one : other
}

/** As Node says that the other side has closed the connection before the end of its answer. */
const isBrokenOff = (error: unknown): boolean =>
  isNativeError(error) && (error as NodeJS.ErrnoException).code === 'ECONNRESET'
