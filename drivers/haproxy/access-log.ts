import { routeOf, targetOf, type WrittenAccess } from '../../lib/access-log.ts'

// The access log: what HAProxy writes for each request. Its line is JSON, so that no value of a client can end its field.
// It is kept as it is written, for the log's reader has to keep pace with HAProxy: clients get more readable lines
// (lib/access-log.ts).

const text = (value: string): string => `"${value}"`

// The reader takes sums from the first fields, in this order.
const common = {
  at: text('%Ts.%ms'),
  backend: text('%b'),
  server: text('%s'),
  bytes_in: '%U',
  bytes_out: '%B',
  wait_ms: '%Tw',
  connect_ms: '%Tc',
}
const sums =
  /^\{"at":"\d+\.\d+","backend":"([^"]*)","server":"([^"]*)","bytes_in":(\d+),"bytes_out":(\d+),"wait_ms":(-?\d+),"connect_ms":(-?\d+),"response_ms":(-?\d+),"total_ms":(-?\d+),"status":(-?\d+),.*"\}$/

const others = { client: text('%ci'), retries: text('%rc'), end: text('%ts') }

const formatOf = (fields: Record<keyof WrittenAccess, string>): string =>
  `{${Object.entries(fields)
    .map(([name, value]) => `"${name}":${value}`)
    .join(',')}}`

/** Fields in HAProxy's own notation. `json` escapes what a client chose. */
export const httpLog = formatOf({
  ...common,
  response_ms: '%Tr',
  total_ms: '%Ta',
  status: '%ST',
  request_id: text('%ID'),
  method: text('%HM'),
  host: text('%[var(txn.host),json(utf8s)]'),
  path: text('%[var(txn.path)]'),
  protocol: text('%HV'),
  ...others,
})

export const tcpLog = formatOf({
  ...common,
  response_ms: '-1',
  total_ms: '%Tt',
  status: '-1',
  request_id: text(''),
  method: text(''),
  host: text(''),
  path: text(''),
  protocol: text('TCP'),
  ...others,
})

/** What is summed up of a request. */
export interface Measured {
  route_id: string | null
  target_id: string | null
  bytes_in: number
  bytes_out: number
  /** Null: there was no response. */
  status: number | null
  /** To the response's head, so that a long stream is no slow request. */
  latency_ms: number
}

const positive = (ms: number): number => Math.max(0, ms)

/** Null for a line that is not of the access log, or is cut. */
export function measured(line: string): Measured | null {
  const found = sums.exec(line)
  if (!found) return null
  const [backend = '', server = ''] = found.slice(1, 3)
  const [bytes_in = 0, bytes_out = 0, wait = 0, connect = 0, response = 0, total = 0, status = 0] = found
    .slice(3)
    .map(Number)
  return {
    route_id: routeOf(backend),
    target_id: targetOf(server),
    bytes_in,
    bytes_out,
    status: status < 0 ? null : status,
    latency_ms: response < 0 ? positive(total) : positive(wait) + positive(connect) + response,
  }
}
