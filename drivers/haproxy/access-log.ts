// The access log: what HAProxy writes for each request, and what tenants read. HAProxy's line is JSON too, so that no
// value of a client can end its field; it becomes the tenant's once names are ids and times are whole.

const text = (value: string): string => `"${value}"`

/** Fields in HAProxy's own notation. `json` escapes what a client chose. */
const common = {
  at: text('%Ts.%ms'),
  client: text('%ci'),
  backend: text('%b'),
  server: text('%s'),
  bytes_in: '%U',
  bytes_out: '%B',
  wait_ms: '%Tw',
  connect_ms: '%Tc',
  end: text('%ts'),
}

const formatOf = (fields: Record<string, string>): string =>
  `{${Object.entries(fields)
    .map(([name, value]) => `"${name}":${value}`)
    .join(',')}}`

export const httpLog = formatOf({
  ...common,
  request_id: text('%ID'),
  method: text('%HM'),
  host: text('%[var(txn.host),json(utf8s)]'),
  path: text('%[var(txn.path)]'),
  protocol: text('%HV'),
  status: '%ST',
  response_ms: '%Tr',
  total_ms: '%Ta',
  retries: text('%rc'),
})

export const tcpLog = formatOf({ ...common, protocol: text('TCP'), total_ms: '%Tt', retries: text('%rc') })

interface Written {
  at: string
  client: string
  backend: string
  server: string
  bytes_in: number
  bytes_out: number
  wait_ms: number
  connect_ms: number
  end: string
  request_id?: string
  method?: string
  host?: string
  path?: string
  protocol: string
  status?: number
  response_ms?: number
  total_ms: number
  retries: string
}

/** A line of the access log. Null: the connection ended before that, or there was none. */
export interface AccessEntry {
  time: string
  request_id: string | null
  client: string
  route_id: string | null
  target_id: string | null
  method: string | null
  host: string | null
  path: string | null
  protocol: string
  status: number | null
  bytes_in: number
  bytes_out: number
  wait_ms: number | null
  connect_ms: number | null
  response_ms: number | null
  total_ms: number
  retries: number
  /** HAProxy's two letters for how the connection ended; `--` is the normal end. */
  end: string
}

const known = (value: number | undefined): number | null => (value === undefined || value < 0 ? null : value)
const given = (value: string | undefined): string | null =>
  value === undefined || value === '' || value === '-' ? null : value

export const routeOf = (backend: string): string | null => /^[rgt]-(.+)$/.exec(backend)?.[1] ?? null
export const targetOf = (server: string): string | null => /^s-(.+)$/.exec(server)?.[1] ?? null

/** Null for a line that is not of the access log. */
export function readAccess(line: string): AccessEntry | null {
  let written: Written
  try {
    written = JSON.parse(line) as Written
  } catch {
    return null
  }
  if (typeof written !== 'object' || written === null || typeof written.backend !== 'string') return null
  const time = new Date(Number(written.at) * 1000)
  return {
    time: Number.isNaN(time.getTime()) ? new Date().toISOString() : time.toISOString(),
    request_id: given(written.request_id),
    client: written.client,
    route_id: routeOf(written.backend),
    target_id: targetOf(written.server),
    method: given(written.method?.replace('<BADREQ>', '')),
    host: given(written.host),
    path: given(written.path),
    protocol: written.protocol,
    status: known(written.status),
    bytes_in: written.bytes_in,
    bytes_out: written.bytes_out,
    wait_ms: known(written.wait_ms),
    connect_ms: known(written.connect_ms),
    response_ms: known(written.response_ms),
    total_ms: Math.max(0, written.total_ms),
    retries: Number.parseInt(written.retries.replace('+', ''), 10) || 0,
    end: written.end,
  }
}
