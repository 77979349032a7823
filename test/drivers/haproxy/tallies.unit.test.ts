import { expect, test } from '@jest/globals'
import { type Measured, measured } from '../../../drivers/haproxy/access-log.ts'
import { Tallies } from '../../../drivers/haproxy/tallies.ts'

const entry = (over: Partial<Measured> = {}): Measured => ({
  route_id: 'route',
  target_id: 'target',
  bytes_in: 10,
  bytes_out: 20,
  status: 200,
  latency_ms: 2,
  ...over,
})

test('percentiles are within 4 % and cover the last minute', () => {
  const tallies = new Tallies([])
  for (let ms = 1; ms <= 1000; ms++) tallies.add(entry({ latency_ms: ms }), 1_000)
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

const line = (fields: string, rest = '"client":"192.0.2.1","end":"--"}'): string =>
  `{"at":"1795428000.123",${fields},${rest}`
const served = [
  '"backend":"r-a","server":"s-b","bytes_in":1,"bytes_out":2',
  '"wait_ms":3,"connect_ms":4,"response_ms":5,"total_ms":90,"status":200',
].join(',')
const broken = [
  '"backend":"none","server":"<NOSRV>","bytes_in":1,"bytes_out":2',
  '"wait_ms":-1,"connect_ms":-1,"response_ms":-1,"total_ms":90,"status":-1',
].join(',')

test('a line is measured up to the response’s head, or to its end if there was none', () => {
  expect(measured(line(served))).toEqual({
    route_id: 'a',
    target_id: 'b',
    bytes_in: 1,
    bytes_out: 2,
    status: 200,
    latency_ms: 12,
  })
  expect(measured(line(broken))).toMatchObject({
    route_id: null,
    target_id: null,
    status: null,
    latency_ms: 90,
  })
})

test('a line that is not of the access log, or is cut, is none', () => {
  for (const other of [
    '',
    'Proxy l-80 started.',
    '{',
    'null',
    '[]',
    '{"backend":1}',
    line(served, '"client":"1'),
  ])
    expect(measured(other)).toBeNull()
})
