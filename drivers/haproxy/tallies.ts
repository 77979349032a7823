import type { ResponseClass } from '../load-balancers.ts'
import type { Measured } from './access-log.ts'

// Sums over the access log: of all requests, by route, and by target. They survive reloads, which HAProxy's own counters
// do not.

export interface Tally {
  /** Null: requests that no route took. */
  route_id: string | null
  /** Null: requests that reached no target. */
  target_id: string | null
  requests: number
  responses: Partial<Record<ResponseClass, number>>
  bytes_in: number
  bytes_out: number
}

/** As in the file that the log's reader writes. */
export interface Tallied {
  /** When the sums began. */
  started_at: string
  /** The time of the last entry of the log that is in the sums; empty if there is none. */
  up_to: string
  /** Up to which byte of HAProxy's file all is written. */
  position: number
  tallies: Tally[]
  latencies: Latency[]
}

/** Latencies of the last minute: of all requests (both ids null), of a route (`target_id` null), or of a target. */
export interface Latency {
  route_id: string | null
  target_id: string | null
  ms: [p50: number, p95: number, p99: number]
}

const sliceMs = 5_000
const slices = 12
// Buckets grow by 4 %: that is the error of a percentile.
const growth = Math.log(1.04)
const bucketOf = (ms: number): number => Math.round(Math.log(ms + 1) / growth)
const msOf = (bucket: number): number => Math.round(Math.exp(bucket * growth) - 1)

/** Latencies of the last minute, in slices of five seconds. */
class Latencies {
  readonly #slices: { at: number; counts: Map<number, number> }[] = []

  add(ms: number, now: number): void {
    const at = Math.floor(now / sliceMs)
    let slice = this.#slices.at(-1)
    if (slice?.at !== at) {
      slice = { at, counts: new Map() }
      this.#slices.push(slice)
      this.#drop(at)
    }
    const bucket = bucketOf(ms)
    slice.counts.set(bucket, (slice.counts.get(bucket) ?? 0) + 1)
  }

  #drop(at: number): void {
    while (this.#slices[0] && this.#slices[0].at <= at - slices) this.#slices.shift()
  }

  /** Null if there were no requests. */
  percentiles(now: number): [number, number, number] | null {
    this.#drop(Math.floor(now / sliceMs))
    const sums = new Map<number, number>()
    for (const { counts } of this.#slices)
      for (const [bucket, count] of counts) sums.set(bucket, (sums.get(bucket) ?? 0) + count)
    const ordered = [...sums].toSorted(([one], [other]) => one - other)
    const total = ordered.reduce((sum, [, count]) => sum + count, 0)
    if (total === 0) return null
    const at = (share: number): number => {
      let seen = 0
      for (const [bucket, count] of ordered) {
        seen += count
        if (seen >= share * total) return msOf(bucket)
      }
      return 0
    }
    return [at(0.5), at(0.95), at(0.99)]
  }
}

const classes: Partial<Record<number, ResponseClass>> = { 2: '2xx', 3: '3xx', 4: '4xx', 5: '5xx' }
const classOf = (status: number | null): ResponseClass => classes[Math.floor((status ?? 0) / 100)] ?? 'other'

const keyOf = (route: string | null, target: string | null): string => `${route ?? ''} ${target ?? ''}`

export class Tallies {
  readonly #tallies = new Map<string, Tally>()
  readonly #latencies = new Map<string, Omit<Latency, 'ms'> & { times: Latencies }>()

  constructor(before: Tally[]) {
    for (const tally of before) this.#tallies.set(keyOf(tally.route_id, tally.target_id), tally)
  }

  add({ route_id, target_id, status, latency_ms, bytes_in, bytes_out }: Measured, now: number): void {
    const tally = this.#tallyOf(route_id, target_id)
    tally.requests++
    const name = classOf(status)
    tally.responses[name] = (tally.responses[name] ?? 0) + 1
    tally.bytes_in += bytes_in
    tally.bytes_out += bytes_out
    this.#timesOf(null, null).add(latency_ms, now)
    if (route_id !== null) this.#timesOf(route_id, null).add(latency_ms, now)
    if (target_id !== null) this.#timesOf(route_id, target_id).add(latency_ms, now)
  }

  #tallyOf(route_id: string | null, target_id: string | null): Tally {
    const key = keyOf(route_id, target_id)
    const known = this.#tallies.get(key)
    if (known) return known
    const fresh = { route_id, target_id, requests: 0, responses: {}, bytes_in: 0, bytes_out: 0 }
    this.#tallies.set(key, fresh)
    return fresh
  }

  #timesOf(route_id: string | null, target_id: string | null): Latencies {
    const key = keyOf(route_id, target_id)
    const known = this.#latencies.get(key)
    if (known) return known.times
    const times = new Latencies()
    this.#latencies.set(key, { route_id, target_id, times })
    return times
  }

  /** Also forgets latencies that are too old. */
  result(now: number): Pick<Tallied, 'tallies' | 'latencies'> {
    const latencies: Latency[] = []
    for (const [key, { times, ...of }] of this.#latencies) {
      const ms = times.percentiles(now)
      if (ms) latencies.push({ ...of, ms })
      else this.#latencies.delete(key)
    }
    return { tallies: [...this.#tallies.values()], latencies }
  }
}
