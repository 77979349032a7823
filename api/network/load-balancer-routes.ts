import { z } from 'zod'
import { findInstances } from '../../models/compute/instance-kinds.ts'
import {
  balancerOf,
  changeRoute,
  createRoute,
  deleteRoute,
  Route,
  type RouteDocument,
  routeOf,
  type TargetRecord,
} from '../../models/network/load-balancer-routes.ts'
import { Nic } from '../../models/network/nics.ts'
import { healthOf } from '../../models/network/observe-load-balancers.ts'
import { needUnmanaged } from '../../models/managed.ts'
import { byId, Id, Name, Tags, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import {
  AskedTarget,
  HeadersAdd,
  HeadersRemove,
  Health,
  HostMatch,
  Method,
  PathMatch,
  PathMatchType,
  PortNumber,
  PrefixRewrite,
  RedirectStatus,
  RedirectUrl,
  Seconds,
  Weight,
} from './load-balancer-fields.ts'

const Status = z.enum(['active', 'disabled'])

/** The fields of a request, and of the view unless it says otherwise. */
const fields = {
  name: Name,
  tags: Tags,
  priority: z
    .int()
    .min(0)
    .max(100_000)
    .describe(
      'Routes are tried in ascending order of priority; at equal priority, the more specific route comes first',
    ),
  host_match: HostMatch.nullable().describe(
    'An exact host name, or a wildcard such as *.example.com; null: any host',
  ),
  listener_port: PortNumber.nullable().describe(
    'The port of the one listener that the route serves; null: all listeners',
  ),
  path_match: PathMatch.nullable().describe('The path that requests must have; null: any'),
  path_match_type: PathMatchType,
  method: Method.nullable().describe('The method that requests must have; null: any'),
  prefix_rewrite: PrefixRewrite.nullable().describe('What replaces the matched prefix'),
  redirect_status: RedirectStatus.nullable(),
  redirect_url: RedirectUrl.nullable().describe(
    'The target of the redirect. {host} and {path} stand for the request’s, {http_port} and {https_port} for the listeners’ ports',
  ),
  redirect_to_https: z.boolean().describe('Redirect plain HTTP, if there is an https listener'),
  request_headers_add: HeadersAdd,
  request_headers_remove: HeadersRemove,
  response_headers_add: HeadersAdd,
  response_headers_remove: HeadersRemove,
  idle_timeout_sec: Seconds.describe(
    'Seconds after which a connection without data ends, such as an idle WebSocket',
  ),
  request_timeout_sec: Seconds.describe('Seconds from a request to the first byte of its response'),
  backend_port: PortNumber,
  backend_tls: z.boolean(),
  backend_sni: z
    .string()
    .max(253)
    .regex(/^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/, 'must be a host name')
    .nullable(),
  backend_ca_trust_id: Id.nullable().describe(
    'The CA trust that verifies targets’ certificates; null: they are not verified',
  ),
  sticky: z.boolean().describe('A cookie keeps each client at its target'),
  targets: z.array(AskedTarget).max(100),
  drain_timeout_sec: z
    .int()
    .min(0)
    .max(3600)
    .describe('Seconds that a removed target keeps its open connections'),
  status: Status.describe('The load balancer ignores a disabled route'),
}

const CreateRoute = z.strictObject({
  ...fields,
  tags: Tags.default({}),
  priority: fields.priority.default(100),
  host_match: fields.host_match.default(null),
  listener_port: fields.listener_port.default(null),
  path_match: fields.path_match.default(null),
  path_match_type: fields.path_match_type.default('prefix'),
  method: fields.method.default(null),
  prefix_rewrite: fields.prefix_rewrite.default(null),
  redirect_status: fields.redirect_status.default(null),
  redirect_url: fields.redirect_url.default(null),
  redirect_to_https: fields.redirect_to_https.default(false),
  request_headers_add: HeadersAdd.default({}),
  request_headers_remove: HeadersRemove.default([]),
  response_headers_add: HeadersAdd.default({}),
  response_headers_remove: HeadersRemove.default([]),
  idle_timeout_sec: fields.idle_timeout_sec.default(60),
  request_timeout_sec: fields.request_timeout_sec.default(60),
  backend_port: fields.backend_port.default(80),
  backend_tls: fields.backend_tls.default(false),
  backend_sni: fields.backend_sni.default(null),
  backend_ca_trust_id: fields.backend_ca_trust_id.default(null),
  sticky: fields.sticky.default(false),
  targets: fields.targets.default([]),
  drain_timeout_sec: fields.drain_timeout_sec.default(30),
  status: fields.status.default('active'),
})

const RouteView = z
  .strictObject({
    ...fields,
    tags: z.record(z.string(), z.string()),
    id: Id,
    lb_id: Id,
    tenant_id: Id,
    status: z.enum(['active', 'disabled', 'error']).describe('`error`: the proxy refused the route'),
    status_reason: z.string().nullable().describe('Why the proxy refused the route'),
    targets: z.array(
      z.strictObject({
        id: Id.describe('The id of the target in logs and metrics'),
        address: z.string().nullable(),
        nic_id: Id.nullable(),
        port: PortNumber.nullable().describe('The port; null: the route’s backend_port'),
        host_id: Id.nullable().describe('The host of the instance'),
        weight: Weight,
        health_state: Health,
      }),
    ),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'LoadBalancerRoute' })
type View = z.output<typeof RouteView>

/** What the views of a load balancer's routes need beside the records. */
async function around(lbId: string, routes: RouteDocument[]) {
  const nicIds = routes.flatMap((route) => placesOf(route).flatMap(({ nic_id }) => nic_id ?? []))
  const [health, nics] = await Promise.all([
    healthOf([lbId]),
    nicIds.length ? Nic.find({ tenant_id: routes[0]?.tenant_id ?? '', _id: { $in: nicIds } }).lean() : [],
  ])
  const instances = nics.length
    ? await findInstances({ _id: { $in: nics.map(({ instance_id }) => instance_id) } })
    : []
  const hosts = new Map(instances.map(({ instance }) => [instance._id, instance.host_id]))
  return {
    health,
    nics: new Map(
      nics.map(({ _id, ip_address, instance_id }) => [
        _id,
        { address: ip_address, host_id: hosts.get(instance_id) ?? null },
      ]),
    ),
  }
}

const placesOf = ({ targets, draining }: RouteDocument): TargetRecord[] => {
  const now = new Date()
  return [...targets, ...draining.flatMap(({ target, until }) => (until > now ? [target] : []))]
}

async function toViews(lbId: string, routes: RouteDocument[]): Promise<View[]> {
  const known = await around(lbId, routes)
  return routes.map((route) => toView(route, known))
}

const viewOf = async (route: RouteDocument): Promise<View> =>
  toView(route, await around(route.lb_id, [route]))

function toView(route: RouteDocument, { health, nics }: Awaited<ReturnType<typeof around>>): View {
  return {
    id: route._id,
    lb_id: route.lb_id,
    tenant_id: route.tenant_id,
    name: route.name,
    tags: route.tags,
    status: route.status,
    status_reason: route.status_reason,
    priority: route.priority,
    host_match: route.host_match,
    listener_port: route.listener_port,
    path_match: route.path_match,
    path_match_type: route.path_match_type,
    method: route.method,
    prefix_rewrite: route.prefix_rewrite,
    redirect_status: route.redirect_status,
    redirect_url: route.redirect_url,
    redirect_to_https: route.redirect_to_https,
    request_headers_add: route.request_headers_add,
    request_headers_remove: route.request_headers_remove,
    response_headers_add: route.response_headers_add,
    response_headers_remove: route.response_headers_remove,
    idle_timeout_sec: route.idle_timeout_sec,
    request_timeout_sec: route.request_timeout_sec,
    backend_port: route.backend_port,
    backend_tls: route.backend_tls,
    backend_sni: route.backend_sni,
    backend_ca_trust_id: route.backend_ca_trust_id,
    sticky: route.sticky,
    targets: placesOf(route).map(({ id, address, nic_id, port, weight }) => {
      const nic = nics.get(nic_id ?? '')
      return {
        id,
        address: address ?? nic?.address ?? null,
        nic_id,
        port,
        host_id: nic?.host_id ?? null,
        weight,
        health_state: route.targets.some((target) => target.id === id)
          ? (health.get(`${route._id} ${id}`) ?? 'unknown')
          : 'draining',
      }
    }),
    drain_timeout_sec: route.drain_timeout_sec,
    created_at: time(route.created_at),
    updated_at: time(route.updated_at),
  }
}

/** Throws ManagedResource: the routes of a deploy server's load balancer are its applications'. */
async function needOwn(caller: { tenant_id: string }, id: string): Promise<void> {
  needUnmanaged('load balancer', await balancerOf(caller, id))
}

const path = '/api/v1/load-balancers/{id}/routes'
const byRoute = z.strictObject({ id: Id, route_id: Id })

export const loadBalancerRoutes = [
  list({
    path,
    permission: 'load_balancers:read',
    summary: 'List the routes of a load balancer',
    params: byId,
    model: Route,
    view: RouteView,
    toViews: (routes) => toViews(routes[0]?.lb_id ?? '', routes),
    scope: async (caller, { id }) => {
      const { _id, tenant_id } = await balancerOf(caller, id)
      return { tenant_id, lb_id: _id }
    },
  }),

  operation({
    method: 'POST',
    path,
    permission: 'load_balancers:update',
    summary: 'Create a route of a load balancer',
    params: byId,
    body: CreateRoute,
    responses: { 201: RouteView },
    handle: async ({ caller, params, body }) => {
      await needOwn(caller, params.id)
      const route = await createRoute(caller.tenant_id, params.id, body)
      return {
        location: `/api/v1/load-balancers/${params.id}/routes/${route._id}`,
        body: await viewOf(route),
      }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{route_id}`,
    permission: 'load_balancers:read',
    summary: 'Get a route with the health of its targets',
    params: byRoute,
    responses: { 200: RouteView },
    handle: async ({ caller, params: { id, route_id } }) =>
      viewOf(await routeOf(caller.tenant_id, id, route_id)),
  }),

  operation({
    method: 'PUT',
    path: `${path}/{route_id}`,
    permission: 'load_balancers:update',
    summary: 'Update a route without dropping a connection; removed targets drain',
    params: byRoute,
    body: z.strictObject(fields).partial(),
    responses: { 200: RouteView },
    handle: async ({ caller, params: { id, route_id }, body }) => {
      await needOwn(caller, id)
      return viewOf(await changeRoute(caller.tenant_id, id, route_id, body))
    },
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{route_id}`,
    permission: 'load_balancers:update',
    summary: 'Delete a route',
    params: byRoute,
    responses: { 204: null },
    handle: async ({ caller, params: { id, route_id } }) => {
      await needOwn(caller, id)
      await deleteRoute(caller.tenant_id, id, route_id)
    },
  }),
]
