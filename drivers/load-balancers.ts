import type { LogFiles } from './log-files.ts'

// Load balancers of one host. A description is complete; the driver brings the load balancer's process to it.

export interface LoadBalancerSpec {
  /** At most one replica of a load balancer is on a host, so this is the load balancer's id. */
  id: string
  tenant_id: string
  /** The network namespace with its NIC, by name in /run/netns. The caller makes it and attaches the NIC. */
  namespace: string
  listeners: ListenerSpec[]
  health_check: HealthCheckSpec
  /** The enabled routes, in any order: the driver sorts them by priority, then by how specific they are. */
  routes: RouteSpec[]
  certificates: { id: string /** The private key and the chain, leaf first. Secret. */; pem: string }[]
  ca_trusts: { id: string; pem: string }[]
  /** HTTP-01 challenges of ACME, answered on every `http` listener before any route or redirect. */
  challenges: { token: string; key_authorization: string }[]
  /** What its access log may use on the host. */
  log_cap_mib: number
}

export interface ListenerSpec {
  /** On its address in the VPC. */
  port: number
  /** On the host's address; null: any free port, kept until the load balancer is removed. */
  host_port: number | null
  /** `tls`: TCP, whose TLS ends here. */
  protocol: 'http' | 'https' | 'tcp' | 'tls'
  /** For https and tls. The first is the default for clients without SNI. */
  certificate_ids: string[]
  redirect_to_https: boolean
}

export interface HealthCheckSpec {
  /** Null: a TCP connection is enough. */
  path: string | null
  interval_sec: number
  timeout_sec: number
  healthy_after: number
  unhealthy_after: number
  /** Null: any 2xx or 3xx. */
  expect_status: number | null
}

/** Every string is a tenant's: the driver validates and quotes it. Null matches everything or changes nothing. */
export interface RouteSpec {
  id: string
  /** The lowest comes first. */
  priority: number
  /** An exact host name, or `*.` and a domain. */
  host_match: string | null
  /** The port of the only listener whose clients it takes. */
  listener_port: number | null
  path_match: string | null
  path_match_type: 'exact' | 'prefix' | 'regex'
  method: string | null
  /** Replaces the matched prefix. */
  prefix_rewrite: string | null
  /**
   * Instead of targets. In the URL, `{host}` and `{path}` stand for the request's host name, and path with query;
   * `{http_port}` and `{https_port}` for the port of the first such listener as the client reaches it, with a colon,
   * and for nothing if it is the scheme's own.
   */
  redirect: { status: number; url: string } | null
  /** Plain HTTP is redirected, if there is a listener for HTTPS. */
  redirect_to_https: boolean
  request_headers_add: Record<string, string>
  request_headers_remove: string[]
  response_headers_add: Record<string, string>
  response_headers_remove: string[]
  idle_timeout_sec: number
  request_timeout_sec: number
  backend_port: number
  backend_tls: boolean
  backend_sni: string | null
  /** Null: the certificate of the target is not checked. */
  backend_ca_trust_id: string | null
  /** A cookie keeps a client at its target. */
  sticky: boolean
  targets: TargetSpec[]
}

export interface TargetSpec {
  id: string
  /** IPv4, in the VPC. */
  address: string
  /** Null: the route's `backend_port`. */
  port: number | null
  /** 0 to 256. Requests are shared in proportion to the weights of the healthy targets. */
  weight: number
  /** `draining`: gets no new connections. `stopped`: its instance does not run, so it is down without a check. */
  state: 'active' | 'draining' | 'stopped'
}

export interface LeftOut {
  kind: 'certificate' | 'ca_trust' | 'listener'
  /** A listener's is its port. */
  id: string
  reason: string
}

export type TargetHealth = 'healthy' | 'unhealthy' | 'unknown' | 'draining'

/** Targets of one route. */
export interface RouteTargets {
  route_id: string
  target_ids: string[]
}

/** A target that no new check has found healthy. */
export interface UnreachedTarget {
  route_id: string
  target_id: string
  /** In plain words. */
  reason: string
}

export interface LoadBalancerState {
  id: string
  /** `broken`: its process does not run although it should. */
  state: 'running' | 'broken' | 'leftover'
  /** Its access log: the engine's id of it, which changes when the load balancer is made anew. Null for a leftover. */
  log: { engine_id: string; cap_mib: number } | null
  ports: { port: number; host_port: number; protocol: ListenerSpec['protocol'] }[]
  /** Routes that the engine refused, with its reason; all others are in effect. */
  refused: { route_id: string; reason: string }[]
  /** What else the engine refused; all other parts are in effect. */
  left_out: LeftOut[]
  targets: { route_id: string; target_id: string; health: TargetHealth; connections: number }[]
}

export const responseClasses = ['2xx', '3xx', '4xx', '5xx', 'other'] as const
export type ResponseClass = (typeof responseClasses)[number]

/** Counters since `started_at`, which grow as long as the load balancer is on the host. */
export interface LoadBalancerSamples {
  started_at: string
  /** The sum of all requests, then each route, and each of its targets. */
  routes: RouteSample[]
}

/** Counters from the access log; latencies are over the last minute. */
export interface RouteSample {
  /** Null: the sum of all routes, and requests that no route took. */
  route_id: string | null
  /** Null: the sum of all targets, and requests that reached none. */
  target_id: string | null
  requests: number
  /** `other`: no response, or a connection of a listener for TCP or TLS. */
  responses: Record<ResponseClass, number>
  connections: number
  bytes_in: number
  bytes_out: number
  p50_ms: number | null
  p95_ms: number | null
  p99_ms: number | null
}

/**
 * All calls are idempotent and complete: after a crash at any point, a repeated call repairs what was left. Throws
 * EngineRefused, PortInUse, HostNotEquipped, EngineUnavailable.
 */
export interface LoadBalancerEngine {
  /**
   * Starts the process, or changes it without dropping a connection: over its runtime API where that is enough, else
   * by a reload. What the engine's own check refuses is left out, and never replaces what runs.
   */
  apply(spec: LoadBalancerSpec): Promise<LoadBalancerState>
  /** Ends the process and removes its files. Succeeds if there is none. */
  remove(id: string): Promise<void>
  /** Null if there is none. */
  find(id: string): Promise<LoadBalancerState | null>
  /** All that the engine made on this host, including leftovers of a killed process. */
  list(): Promise<LoadBalancerState[]>
  /**
   * Waits until a check that began after this call has found each of these targets healthy, for `withinMs` at most. Returns
   * the targets that were not.
   */
  recheck(
    id: string,
    targets: RouteTargets[],
    withinMs: number,
    signal?: AbortSignal,
  ): Promise<UnreachedTarget[]>
  /** Null if there is none. */
  samples(id: string): Promise<LoadBalancerSamples | null>
  /** Calls back at a change of health or an end of a process, until aborted. */
  watch(onChange: (id: string) => void, signal: AbortSignal): Promise<void>
  /** Restarts processes that have ended. */
  mend(): Promise<void>
  /** Access logs in the format of containers' output, one JSON object per line. */
  readonly files: LogFiles
  close(): Promise<void>
}
