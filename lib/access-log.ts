// A line of an access log: as HAProxy writes it and hosts and the archive keep it, and as clients get it.

/** HAProxy's line (drivers/haproxy/access-log.ts). Times are in milliseconds, and -1 if it did not come to that. */
export interface WrittenAccess {
  /** Seconds with three decimals. */
  at: string
  backend: string
  server: string
  bytes_in: number
  bytes_out: number
  wait_ms: number
  connect_ms: number
  response_ms: number
  total_ms: number
  status: number
  client: string
  request_id: string
  method: string
  host: string
  path: string
  protocol: string
  retries: string
  end: string
}

/** What clients get. Null: the connection ended before that, or there was none. */
export interface AccessEntry {
  began_at: string
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

/** The route of a backend and the target of a server: HAProxy's names begin with their kind. Null: they have none. */
export const routeOf = (backend: string): string | null => /^[rgt]-(.+)$/.exec(backend)?.[1] ?? null
export const targetOf = (server: string): string | null => /^s-(.+)$/.exec(server)?.[1] ?? null

const known = (value: number): number | null => (value < 0 ? null : value)
const given = (value: string): string | null => (value === '' || value === '-' ? null : value)

/** Null if the line is damaged. */
export function accessOf(line: string): AccessEntry | null {
  try {
    return entryOf(JSON.parse(line) as WrittenAccess)
  } catch {
    return null
  }
}

const entryOf = (written: WrittenAccess): AccessEntry => ({
  began_at: new Date(Number(written.at) * 1000).toISOString(),
  request_id: given(written.request_id),
  client: written.client,
  route_id: routeOf(written.backend),
  target_id: targetOf(written.server),
  method: given(written.method.replace('<BADREQ>', '')),
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
})
