import { z } from 'zod'

// Messages between a host and the API about load balancers. The shapes are those of drivers/load-balancers.ts.

const protocol = z.enum(['http', 'https', 'tcp', 'tls'])

const Target = z.object({
  id: z.string(),
  address: z.string(),
  port: z.int().nullable(),
  weight: z.int(),
  state: z.enum(['active', 'draining', 'stopped']),
})

const Headers = z.record(z.string(), z.string())

const Route = z.object({
  id: z.string(),
  priority: z.int(),
  host_match: z.string().nullable(),
  listener_port: z.int().nullable(),
  path_match: z.string().nullable(),
  path_match_type: z.enum(['exact', 'prefix', 'regex']),
  method: z.string().nullable(),
  prefix_rewrite: z.string().nullable(),
  redirect: z.object({ status: z.int(), url: z.string() }).nullable(),
  redirect_to_https: z.boolean(),
  request_headers_add: Headers,
  request_headers_remove: z.array(z.string()),
  response_headers_add: Headers,
  response_headers_remove: z.array(z.string()),
  idle_timeout_sec: z.int(),
  request_timeout_sec: z.int(),
  backend_port: z.int(),
  backend_tls: z.boolean(),
  backend_sni: z.string().nullable(),
  backend_ca_trust_id: z.string().nullable(),
  sticky: z.boolean(),
  targets: z.array(Target),
})

const LoadBalancer = z.object({
  id: z.string(),
  tenant_id: z.string(),
  /** The id of its NIC's owner in the host's networks. */
  replica_id: z.string(),
  listeners: z.array(
    z.object({
      port: z.int(),
      host_port: z.int().nullable(),
      protocol,
      certificate_ids: z.array(z.string()),
      redirect_to_https: z.boolean(),
    }),
  ),
  health_check: z.object({
    path: z.string().nullable(),
    interval_sec: z.int(),
    timeout_sec: z.int(),
    healthy_after: z.int(),
    unhealthy_after: z.int(),
    expect_status: z.int().nullable(),
  }),
  routes: z.array(Route),
  certificates: z.array(z.object({ id: z.string(), pem: z.string() })),
  ca_trusts: z.array(z.object({ id: z.string(), pem: z.string() })),
  challenges: z.array(z.object({ token: z.string(), key_authorization: z.string() })),
  log_cap_mib: z.int(),
})

/** The complete load balancers of a host, with their private keys. The host removes all others. */
export const HostLoadBalancers = z.object({ version: z.string(), load_balancers: z.array(LoadBalancer) })

export type HostLoadBalancer = z.infer<typeof LoadBalancer>
export type HostLoadBalancers = z.infer<typeof HostLoadBalancers>

/** A load balancer found on a host. */
export const ObservedLoadBalancer = z.strictObject({
  kind: z.literal('load_balancer'),
  id: z.string(),
  state: z.enum(['running', 'broken', 'leftover']),
  ports: z.array(z.strictObject({ port: z.int(), host_port: z.int(), protocol })),
  refused: z.array(z.strictObject({ route_id: z.string(), reason: z.string() })),
  left_out: z.array(
    z.strictObject({
      kind: z.enum(['certificate', 'ca_trust', 'listener']),
      id: z.string(),
      reason: z.string(),
    }),
  ),
  targets: z.array(
    z.strictObject({
      route_id: z.string(),
      target_id: z.string(),
      health: z.enum(['healthy', 'unhealthy', 'unknown', 'draining']),
      connections: z.int().nonnegative(),
    }),
  ),
})
export type ObservedLoadBalancer = z.infer<typeof ObservedLoadBalancer>

const milliseconds = z.number().nonnegative().nullable()

/** One line of `GET /load-balancers/{id}/logs`: a request, or a connection of a listener for TCP. */
export const AccessLine = z.object({
  time: z.iso.datetime({ precision: null }).describe('When the request was logged, after its response (UTC)'),
  host_id: z.string().describe('The host of the replica'),
  began_at: z.iso.datetime().describe('When the request arrived'),
  request_id: z.string().nullable().describe('The value of the header `X-Request-Id` that the target gets'),
  client: z.string(),
  route_id: z.string().nullable().describe('The route that took the request; null: none'),
  target_id: z.string().nullable().describe('The target that the request reached; null: none'),
  method: z.string().nullable(),
  host: z.string().nullable(),
  path: z.string().nullable().describe('The path without the query'),
  protocol: z.string(),
  status: z.int().nullable().describe('The status of the response; null: the connection ended before it'),
  bytes_in: z.int(),
  bytes_out: z.int(),
  wait_ms: milliseconds.describe('Time in the queue, in ms'),
  connect_ms: milliseconds.describe('Time to connect to the target, in ms'),
  response_ms: milliseconds.describe(
    'Time from the request to the first byte of the target’s response, in ms',
  ),
  total_ms: milliseconds.describe('Time from the request to the end of the response, in ms'),
  retries: z.int().describe('Further attempts to reach a target'),
  end: z.string().describe('HAProxy’s two letters for how the connection ended; `--` is the normal end'),
})

const counter = z.number().nonnegative()

/**
 * What a route or target of one replica has served up to `time`. Counters start at `started_at`, not at the previous
 * sample. A row that is missing has not changed since the one before.
 */
const RouteCounters = z.strictObject({
  route_id: z.string().nullable(),
  target_id: z.string().nullable(),
  requests: counter,
  responses: z.strictObject({
    '2xx': counter,
    '3xx': counter,
    '4xx': counter,
    '5xx': counter,
    other: counter,
  }),
  connections: counter,
  bytes_in: counter,
  bytes_out: counter,
  p50_ms: counter.nullable(),
  p95_ms: counter.nullable(),
  p99_ms: counter.nullable(),
  /** Also store this row in the record by minute. */
  by_minute: z.boolean(),
})

export const LoadBalancerSample = z.strictObject({
  id: z.string(),
  time: z.iso.datetime(),
  started_at: z.iso.datetime(),
  routes: z.array(RouteCounters),
})
export type LoadBalancerSample = z.infer<typeof LoadBalancerSample>
export type RouteCounters = z.infer<typeof RouteCounters>

/** What a host answers about one of its load balancers: all rows as they are now. */
const CountersNow = RouteCounters.omit({ by_minute: true })
export const LoadBalancerCounters = z.object({ started_at: z.iso.datetime(), routes: z.array(CountersNow) })
export type CountersNow = z.infer<typeof CountersNow>

/** The limit of rows in one request body, of all its samples together. */
export const countersPerMessage = 2_000
export const countersBodyKib = 1_024
export const HostLoadBalancerSamples = z.strictObject({
  samples: z.array(LoadBalancerSample).max(countersPerMessage),
})
export type HostLoadBalancerSamples = z.infer<typeof HostLoadBalancerSamples>
/** An unchanged row is repeated after this time: so the row before any sample is at most this old. */
export const countersRepeatedMs = 3_600_000
