import { describe, expect, test } from '@jest/globals'
import type { RouteSample } from '../../drivers/load-balancers.ts'
import { countersPerMessage, HostLoadBalancerSamples } from '../../lib/load-balancer-protocol.ts'
import { inMessages, makeThinner, type Taken } from '../../worker/host/load-balancer-sampler.ts'

// Which counters of load balancers a host sends.

const row = (over: Partial<RouteSample> = {}): RouteSample => ({
  route_id: 'route',
  target_id: null,
  requests: 0,
  responses: { '2xx': 0, '3xx': 0, '4xx': 0, '5xx': 0, other: 0 },
  connections: 0,
  bytes_in: 0,
  bytes_out: 0,
  p50_ms: null,
  p95_ms: null,
  p99_ms: null,
  ...over,
})
const began = Date.parse('2030-01-01')
const at = (second: number, routes: RouteSample[], over: Partial<Taken> = {}): Taken => ({
  id: 'one',
  started_at: '2029-12-31T00:00:00.000Z',
  time: new Date(began + second * 1000).toISOString(),
  routes: [row({ route_id: null }), ...routes],
  ...over,
})

/** For each round the requests of the rows that were sent, with `m` if they are for the record by minute. */
function sent(rounds: { taken: Taken[]; accepted?: boolean }[]): string[][] {
  const thinner = makeThinner()
  return rounds.map(({ taken, accepted = true }) => {
    const samples = thinner.thin(taken)
    expect(HostLoadBalancerSamples.safeParse({ samples }).success).toBe(true)
    if (accepted) thinner.accepted()
    return samples.flatMap(({ routes }) =>
      routes
        .filter(({ route_id }) => route_id !== null)
        .map(({ requests, by_minute }) => `${requests}${by_minute ? 'm' : ''}`),
    )
  })
}

describe('the counters of a route', () => {
  test('are sent when they change, and the first of a minute is for the record by minute', () => {
    const counts = [0, 0, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4]
    const rounds = counts.map((requests, i) => ({ taken: [at(i * 10, [row({ requests })])] }))
    expect(sent(rounds)).toEqual([['0m'], [], ['3'], [], [], [], ['3m'], [], ['4'], [], [], [], ['4m']])
  })

  test('are sent while there are connections or latencies', () => {
    const busy = [row({ connections: 1 }), row({ connections: 1 }), row({ p50_ms: 1 }), row(), row()]
    expect(sent(busy.map((one, i) => ({ taken: [at(i * 10, [one])] })))).toEqual([
      ['0m'],
      ['0'],
      ['0'],
      ['0'],
      [],
    ])
  })

  test('are sent again if they were not accepted', () => {
    const rounds = [
      { taken: [at(0, [row()])] },
      { taken: [at(10, [row({ requests: 1 })])], accepted: false },
      { taken: [at(20, [row({ requests: 1 })])] },
      { taken: [at(30, [row({ requests: 1 })])] },
    ]
    expect(sent(rounds)).toEqual([['0m'], ['1'], ['1'], []])
  })

  test('are repeated within an hour, in both records', () => {
    const rounds = Array.from({ length: 361 }, (_, i) => ({ taken: [at(i * 10, [row()])] }))
    expect(sent(rounds).flat()).toEqual(['0m', '0', '0m'])
  })

  test('are kept by minute when the load balancer leaves the host or begins anew', () => {
    const anew = { started_at: new Date(began + 15_000).toISOString() }
    const rounds = [
      { taken: [at(0, [row()])] },
      { taken: [at(10, [row({ requests: 5 })])] },
      { taken: [at(20, [row({ requests: 1 })], anew)] },
      { taken: [] },
      { taken: [] },
    ]
    expect(sent(rounds)).toEqual([['0m'], ['5'], ['5m', '1m'], [], []])
  })
})

test('messages are bounded, and no row is lost between them', () => {
  const routes = Array.from({ length: countersPerMessage + 500 }, (_, i) => ({
    ...row({ requests: i }),
    by_minute: false,
  }))
  const { id, time, started_at } = at(0, [])
  const samples = ['a', 'b'].map((name) => ({ id: id + name, time, started_at, routes }))
  const messages = inMessages(samples)
  const counts = messages.map((one) => one.samples.reduce((sum, of) => sum + of.routes.length, 0))
  expect(counts).toEqual([countersPerMessage, countersPerMessage, 1000])
  for (const { id: name } of samples)
    expect(
      messages
        .flatMap((one) => one.samples.filter((sample) => sample.id === name))
        .flatMap((sample) => sample.routes.map(({ requests }) => requests)),
    ).toEqual(routes.map(({ requests }) => requests))
})
