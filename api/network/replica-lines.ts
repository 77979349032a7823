import { once } from 'node:events'
import { PassThrough, Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { isNativeError } from 'node:util/types'
import type { LogLine } from '../../lib/host-protocol.ts'
import { NotFound, Unavailable } from '../../lib/problem.ts'
import { away as isAway } from '../compute/observation/log-archive.ts'
import type { LogsQuery } from '../compute/observation/logs.ts'
import { accessLine, inOrderOfTime, remarkOn, type TimedLine } from './access-lines.ts'

// The access log as the hosts of the replicas have it: the lines of now, and new ones as they come.

/** A load balancer, for who reads its lines. */
export interface Replicas {
  isThere: () => Promise<boolean>
  hosts: () => Promise<string[]>
  /** Throws NotFound if the host does not have the load balancer yet, and Unavailable. */
  ask: (host: string, query: LogsQuery) => Promise<Readable>
}

type Seen = Map<string, string>

/**
 * The lines that these hosts have now, after a remark for each host that does not answer; to follow, also those that come
 * later. Throws Unavailable if none answers.
 */
export async function replicaLines(
  replicas: Replicas,
  hosts: string[],
  query: LogsQuery,
  signal: AbortSignal,
): Promise<AsyncIterable<TimedLine[]>> {
  const { lines, seen } = await present(replicas, hosts, query)
  return query.follow ? inTurn(lines, followed(replicas, seen, query.since, signal)) : lines
}

/** `seen` gets the time of each host's last line as it is read. */
async function present(
  replicas: Replicas,
  hosts: string[],
  query: LogsQuery,
): Promise<{ lines: AsyncIterable<TimedLine[]>; seen: Seen }> {
  const seen: Seen = new Map()
  // Who asked for the last lines does not get all lines of a host that could not say where its last one is.
  const now = query.lines === undefined || query.since ? undefined : new Date().toISOString()
  const silent = (host: string): void => void (now && !seen.has(host) && seen.set(host, now))
  // Also without any lines wanted: following begins after the last one.
  const lines = query.lines === undefined ? undefined : Math.max(query.lines, 1)
  const answers = await Promise.allSettled(
    hosts.map(async (host) => {
      const answer = linesOf(host, await ask(replicas, host, { ...query, lines, follow: false }))
      const batches = noting(seen, host, answer)
      return query.follow ? untilBrokenOff(batches, () => silent(host)) : batches
    }),
  )
  const there = answers.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const failure = answers.find((one) => one.status === 'rejected')
  if (there.length === 0 && failure) throw failure.reason
  const away = hosts.filter((_, i) => answers[i]?.status === 'rejected')
  away.forEach(silent)
  const merged = inOrderOfTime(there)
  const found = query.lines === undefined ? merged : lastOf(merged, query.lines)
  return { lines: inTurn([away.map((host) => remarkOn(host, isAway))], found), seen }
}

/** Empty if the host does not have the load balancer yet. */
async function ask(replicas: Replicas, host: string, query: LogsQuery): Promise<Readable> {
  try {
    const answer = await replicas.ask(host, query)
    answer.on('error', () => {}) // whoever reads it gets the error
    return answer
  } catch (error) {
    if (error instanceof NotFound) return Readable.from([])
    throw error
  }
}

async function* linesOf(host: string, answer: Readable): AsyncGenerator<TimedLine[]> {
  let rest = ''
  for await (const part of answer.setEncoding('utf8')) {
    const lines = (rest + String(part)).split('\n')
    rest = lines.pop() ?? ''
    yield lines.map((text) => {
      const { time, line } = JSON.parse(text) as LogLine
      return accessLine(host, time, line)
    })
  }
}

/** What the host has sent when it goes away: following asks it for the rest. */
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
  host: string,
  batches: AsyncIterable<TimedLine[]>,
): AsyncGenerator<TimedLine[]> {
  for await (const lines of batches) {
    const last = lines.at(-1)
    if (last) seen.set(host, last.time)
    yield lines
  }
}

async function* lastOf(batches: AsyncIterable<TimedLine[]>, count: number): AsyncGenerator<TimedLine[]> {
  let kept: TimedLine[] = []
  for await (const lines of batches) {
    kept.push(...lines)
    if (kept.length > 2 * count) kept = count > 0 ? kept.slice(-count) : []
  }
  if (count > 0) yield kept.slice(-count)
}

async function* inTurn<T>(first: AsyncIterable<T> | T[], next: AsyncIterable<T>): AsyncGenerator<T> {
  yield* first
  yield* next
}

// How soon a replica on another host is followed.
const lookEveryMs = 2_000
const mostWaiting = 100

/** New lines of all replicas as they come, also of those that come to other hosts, until the load balancer is gone. */
async function* followed(
  replicas: Replicas,
  seen: Seen,
  since: string | undefined,
  signal: AbortSignal,
): AsyncGenerator<TimedLine[]> {
  const lines = new PassThrough({ objectMode: true, highWaterMark: mostWaiting })
  const reading = new Map<string, Promise<void>>()

  /** Until the host ends its answer or goes away: the next look asks again. */
  async function read(host: string): Promise<void> {
    try {
      const answer = await ask(replicas, host, { follow: true, since: seen.get(host) ?? since })
      for await (const batch of linesOf(host, answer)) {
        const fresh = batch.filter(({ time }) => time > (seen.get(host) ?? ''))
        const last = fresh.at(-1)
        if (!last) continue
        seen.set(host, last.time)
        if (!lines.write(fresh)) await once(lines, 'drain', { signal })
      }
    } catch (error) {
      if (!signal.aborted && !(error instanceof Unavailable) && !isBrokenOff(error))
        lines.destroy(error as Error)
    } finally {
      reading.delete(host)
    }
  }

  async function look(): Promise<void> {
    while (!signal.aborted && (await replicas.isThere())) {
      for (const host of await replicas.hosts()) if (!reading.has(host)) reading.set(host, read(host))
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

/** As `fetch` says that the other side has closed the connection. */
const isBrokenOff = (error: unknown): boolean => isNativeError(error) && error.message === 'terminated'
