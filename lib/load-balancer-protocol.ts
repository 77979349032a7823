import { z } from 'zod'

// Messages between a host and the API about load balancers. The shapes are those of drivers/load-balancers.ts.

const protocol = z.enum(['http', 'https', 'tcp'])

const Target = z.object({
  id: z.string(),
  address: z.string(),
  weight: z.int(),
  state: z.enum(['active', 'draining', 'stopped']),
})

const Headers = z.record(z.string(), z.string())

const Route = z.object({
  id: z.string(),
  priority: z.int(),
  host_match: z.string().nullable(),
  path_match: z.string().nullable(),
  path_match_type: z.enum(['exact', 'prefix', 'regex']),
  method: z.string().nullable(),
  prefix_rewrite: z.string().nullable(),
  redirect: z.object({ status: z.int(), url: z.string() }).nullable(),
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
