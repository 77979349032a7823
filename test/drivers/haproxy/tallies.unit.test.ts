import { expect, test } from '@jest/globals'
import { type AccessEntry, readAccess } from '../../../drivers/haproxy/access-log.ts'
import { Tallies } from '../../../drivers/haproxy/tallies.ts'

const entry = (over: Partial<AccessEntry> = {}): AccessEntry => ({
  time: '2026-11-22T10:00:00.000Z',
  request_id: null,
  client: '192.0.2.1',
  route_id: 'route',
  target_id: 'target',
  method: 'GET',
  host: null,
  path: '/',
  protocol: 'HTTP/1.1',
  status: 200,
  bytes_in: 10,
  bytes_out: 20,
  wait_ms: 0,
  connect_ms: 1,
  response_ms: 1,
  total_ms: 2,
  retries: 0,
  end: '--',
  ...over,
})

test('percentiles are within 4 % and cover the last minute', () => {
  const tallies = new Tallies([])
  for (let ms = 1; ms <= 1000; ms++) tallies.add(entry({ connect_ms: 0, response_ms: ms }), 1_000)
  const [p50 = 0, p95 = 0, p99 = 0] = tallies.result(2_000).latencies[0]?.ms ?? []
  for (const [is, should] of [
    [p50, 500],
    [p95, 950],
    [p99, 990],
  ] as const)
    expect(Math.abs(is - should) / should).toBeLessThan(0.04)
  expect(tallies.result(59_000).latencies).toHaveLength(3)
  expect(tallies.result(70_000).latencies).toHaveLength(0)
})

test('sums go on from what an earlier reader has written', () => {
  const first = new Tallies([])
  first.add(entry(), 0)
  first.add(entry({ target_id: null, status: 503 }), 0)
  const second = new Tallies(first.result(0).tallies)
  second.add(entry({ status: 404 }), 0)
  expect(second.result(0).tallies).toEqual([
    {
      route_id: 'route',
      target_id: 'target',
      requests: 2,
      responses: { '2xx': 1, '4xx': 1 },
      bytes_in: 20,
      bytes_out: 40,
    },
    { route_id: 'route', target_id: null, requests: 1, responses: { '5xx': 1 }, bytes_in: 10, bytes_out: 20 },
  ])
})

test('a line that is not of the access log is none', () => {
  for (const line of ['', 'Proxy l-80 started.', '{', 'null', '[]', '{"backend":1}'])
    expect(readAccess(line)).toBeNull()
})
