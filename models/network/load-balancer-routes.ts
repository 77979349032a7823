import mongoose, { Schema } from 'mongoose'
import type { RouteSpec } from '../../drivers/load-balancers.ts'
import { newId } from '../../lib/ids.ts'
import { contains, parseCidr } from '../../lib/ipv4.ts'
import { type InputError, InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { lockParent } from '../parents.ts'
import { documentOptions, idField, keptBy, mine, named } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { caTrustResource } from './ca-trusts.ts'
import { faultOfHeader } from './header-rules.ts'
import { loadBalancersChanged } from './load-balancer-news.ts'
import { referred } from './load-balancer-acceptance.ts'
import { inUse, type LoadBalancerDocument, loadBalancerResource } from './load-balancers.ts'
import { Nic } from './nics.ts'
import { faultOfRegex, hides, pathPattern } from './route-patterns.ts'
import { Vpc } from './vpcs.ts'

// The routes of load balancers. A change is a change of the record: hosts apply what the records say.

/** Where a route sends requests: an address in the VPC, or a NIC of an instance, whose address it then follows. */
export interface TargetRecord {
  /** The same for the same address or NIC, whatever else changes. */
  id: string
  address: string | null
  nic_id: string | null
  /** Null: the route's `backend_port`. */
  port: number | null
  weight: number
}

/** The fields with the names of the engine's specification mean the same. */
export interface RouteDocument extends Omit<RouteSpec, 'id' | 'redirect' | 'targets'> {
  _id: string
  tenant_id: string
  lb_id: string
  /** Unique in its load balancer. */
  name: string
  tags: Record<string, string>
  /** `disabled`: as if it were not there. `error`: the proxy of a host refused it. */
  status: 'active' | 'disabled' | 'error'
  /** What the proxy said. */
  status_reason: string | null
  redirect_status: number | null
  redirect_url: string | null
  targets: TargetRecord[]
  /** Removed targets, which keep their open connections until then. */
  draining: { target: TargetRecord; until: Date }[]
  drain_timeout_sec: number
  created_at: Date
  updated_at: Date
}

const optional = { type: String, default: null }
const mixed = { type: Schema.Types.Mixed, default: {} }
const whole = { type: Number, required: true }

const schema = new Schema<RouteDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    lb_id: { type: String, required: true },
    name: { type: String, required: true },
    tags: mixed,
    status: { type: String, required: true },
    status_reason: optional,
    priority: whole,
    host_match: optional,
    listener_port: { type: Number, default: null },
    path_match: optional,
    path_match_type: { type: String, required: true },
    method: optional,
    prefix_rewrite: optional,
    redirect_status: { type: Number, default: null },
    redirect_url: optional,
    redirect_to_https: { type: Boolean, required: true },
    request_headers_add: mixed,
    request_headers_remove: { type: [String], default: [] },
    response_headers_add: mixed,
    response_headers_remove: { type: [String], default: [] },
    idle_timeout_sec: whole,
    request_timeout_sec: whole,
    backend_port: whole,
    backend_tls: { type: Boolean, required: true },
    backend_sni: optional,
    backend_ca_trust_id: optional,
    sticky: { type: Boolean, required: true },
    targets: { type: Schema.Types.Mixed, default: [] },
    draining: { type: Schema.Types.Mixed, default: [] },
    drain_timeout_sec: whole,
  },
  { ...documentOptions, collection: 'load_balancer_routes' },
)
tenantScoped(schema)
schema.index({ lb_id: 1, name: 1 }, { unique: true })
schema.index({ tenant_id: 1, lb_id: 1, created_at: -1 })
schema.index({ 'targets.nic_id': 1 })
schema.index({ backend_ca_trust_id: 1 })
export const Route = mongoose.model<RouteDocument>('LoadBalancerRoute', schema)

keptBy(caTrustResource, async ({ _id, tenant_id }) => {
  const routes = await Route.countDocuments({ tenant_id, backend_ca_trust_id: _id })
  if (routes) throw inUse('CA trust', `${routes} routes of load balancers use the CA trust`)
})

/** A route that is about to be written. */
type Written = Omit<RouteDocument, 'created_at' | 'updated_at'>

/** What a client sends: each target without its id. */
export type RouteFields = Omit<
  RouteDocument,
  | '_id'
  | 'tenant_id'
  | 'lb_id'
  | 'status'
  | 'status_reason'
  | 'draining'
  | 'targets'
  | 'created_at'
  | 'updated_at'
> & { status: 'active' | 'disabled'; targets: Omit<TargetRecord, 'id'>[] }
export type RouteChanges = { [Field in keyof RouteFields]?: RouteFields[Field] | undefined }

export const routesAtMost = 1_000

/** Throws NotFound, InvalidInput, NameTaken, StateConflict, `too_many_routes` and `route_hidden`. */
export const createRoute = (tenant_id: string, lb_id: string, fields: RouteFields): Promise<RouteDocument> =>
  changing(tenant_id, lb_id, fields.name, async (vpcId) => {
    const count = await Route.countDocuments({ tenant_id, lb_id })
    if (count >= routesAtMost) {
      const detail = `A load balancer has at most ${routesAtMost} routes`
      throw new Problem(409, 'too_many_routes', 'Too many routes', detail)
    }
    const targets = fields.targets.map((target) => ({ id: newId(), ...target }))
    const route = { ...fields, status_reason: null, targets, tenant_id, lb_id, _id: newId(), draining: [] }
    await check(route, vpcId)
    return (await new Route(route).save()).toObject()
  })

/** Throws as `createRoute`. Removed targets drain. */
export const changeRoute = (
  tenant_id: string,
  lb_id: string,
  id: string,
  changes: RouteChanges,
): Promise<RouteDocument> =>
  changing(tenant_id, lb_id, changes.name ?? '', async (vpcId) => {
    const before = await routeOf(tenant_id, lb_id, id)
    const given = Object.entries(changes).filter(([, value]) => value !== undefined)
    const { targets: asked, ...set } = Object.fromEntries(given) as Partial<RouteFields>
    const targets = asked ? asked.map((target) => ({ id: idIn(before, target), ...target })) : before.targets
    // A changed route is tried again.
    const status = set.status ?? (before.status === 'error' ? 'active' : before.status)
    const route = { ...before, ...set, status, status_reason: null, targets }
    await check(route, vpcId)
    const changed = await Route.findOneAndUpdate(
      { _id: id, tenant_id, lb_id },
      {
        $set: {
          ...set,
          status,
          status_reason: null,
          targets,
          draining: drainingOf(before, route, new Date()),
        },
      },
      { returnDocument: 'after' },
    ).lean()
    if (!changed) throw new NotFound('route')
    return changed
  })

/** Throws NotFound. */
export const deleteRoute = async (tenant_id: string, lb_id: string, id: string): Promise<void> => {
  await changing(tenant_id, lb_id, '', async () => {
    const { deletedCount } = await Route.deleteOne({ _id: id, tenant_id, lb_id })
    if (!deletedCount) throw new NotFound('route')
  })
}

/** Throws NotFound. */
export async function routeOf(tenant_id: string, lb_id: string, _id: string): Promise<RouteDocument> {
  const route = await Route.findOne({ _id, tenant_id, lb_id }).lean()
  if (!route) throw new NotFound('route')
  return route
}

/** Runs `work` in a transaction in which no one else changes the load balancer's routes. */
export const holding = <T>(
  tenantId: string,
  lbId: string,
  work: (balancer: LoadBalancerDocument) => Promise<T>,
): Promise<T> => transaction(async () => work(await lockParent(loadBalancerResource, tenantId, lbId)), lbId)

/** As `holding`, with the news for the hosts. */
const changing = <T>(
  tenantId: string,
  lbId: string,
  name: string,
  work: (vpcId: string) => Promise<T>,
): Promise<T> =>
  named('route', name, () =>
    holding(tenantId, lbId, async ({ vpc_id }) => {
      const done = await work(vpc_id)
      loadBalancersChanged({ ids: [lbId] })
      return done
    }),
  )

type Place = Pick<TargetRecord, 'address' | 'nic_id' | 'port'>
const isSame = (a: Place, b: Place): boolean =>
  a.address === b.address && a.nic_id === b.nic_id && a.port === b.port

/** The id of a target that the route has, or has had until it drained; else a new one. */
const idIn = ({ targets, draining }: RouteDocument, asked: Place): string =>
  [...targets, ...draining.map(({ target }) => target)].find((one) => isSame(one, asked))?.id ?? newId()

function drainingOf(before: RouteDocument, after: RouteDocument, now: Date): RouteDocument['draining'] {
  const until = new Date(now.getTime() + after.drain_timeout_sec * 1000)
  const isLeft = ({ id }: TargetRecord) => !after.targets.some((target) => target.id === id)
  return [
    ...before.draining.filter((one) => one.until > now && isLeft(one.target)),
    ...before.targets.filter(isLeft).map((target) => ({ target, until })),
  ]
}

/** Checks what the API's types cannot. Throws InvalidInput and `route_hidden`. */
async function check(route: Written, vpcId: string): Promise<void> {
  const errors = [...faultsOfMatch(route), ...faultsOfAnswer(route), ...faultsOfHeaders(route)]
  errors.push(...(await faultsOfTargets(route, vpcId)))
  if (errors.length) throw new InvalidInput(422, errors)
  const { tenant_id, backend_ca_trust_id: trust } = route
  if (trust !== null)
    await referred('/backend_ca_trust_id', () => lockParent(caTrustResource, tenant_id, trust))
  if (route.status !== 'disabled') await mustBeReached(route)
}

const fault = (pointer: string, message: string | null): InputError[] =>
  message === null ? [] : [{ pointer, message }]

function faultsOfMatch({ path_match, path_match_type: type, prefix_rewrite }: Written): InputError[] {
  const path = (): string | null => {
    if (path_match === null) return null
    if (type === 'regex') return faultOfRegex(path_match)
    return pathPattern.test(path_match) ? null : 'must be a path of a URL, such as /shop'
  }
  const rewrites = prefix_rewrite !== null && (path_match === null || type !== 'prefix')
  return [
    ...fault('/path_match', path()),
    ...fault('/prefix_rewrite', rewrites ? 'needs a path_match of the type prefix' : null),
  ]
}

function faultsOfAnswer(route: Written): InputError[] {
  const { redirect_status, redirect_url, redirect_to_https, targets } = route
  const { backend_tls, backend_sni, backend_ca_trust_id } = route
  const redirects = redirect_status !== null || redirect_url !== null
  return [
    ...fault('/targets', redirects && targets.length ? 'a route has either targets or a redirect' : null),
    ...fault('/targets', redirects || targets.length ? null : 'a route has targets or a redirect'),
    ...fault('/redirect_url', redirects && redirect_url === null ? 'a redirect needs a URL' : null),
    ...fault('/redirect_status', redirects && redirect_status === null ? 'a redirect needs a status' : null),
    ...fault('/redirect_to_https', redirects && redirect_to_https ? 'a redirect names its own scheme' : null),
    ...fault('/backend_sni', backend_sni !== null && !backend_tls ? 'needs backend_tls' : null),
    ...fault(
      '/backend_ca_trust_id',
      backend_ca_trust_id !== null && !backend_tls ? 'needs backend_tls' : null,
    ),
  ]
}

function faultsOfHeaders(route: Written): InputError[] {
  return (['request', 'response'] as const).flatMap((on) => {
    const [added, removed] = [`${on}_headers_add`, `${on}_headers_remove`] as const
    return [
      ...Object.keys(route[added]).flatMap((name) =>
        fault(`/${added}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`, faultOfHeader(name, on)),
      ),
      ...route[removed].flatMap((name, i) => fault(`/${removed}/${i}`, faultOfHeader(name, on))),
    ]
  })
}

/** Targets are in the load balancer's VPC. What is not there at all is refused alike: it tells nothing. */
async function faultsOfTargets({ tenant_id, targets }: Written, vpcId: string): Promise<InputError[]> {
  if (targets.length === 0) return []
  const ids = targets.flatMap(({ nic_id }) => nic_id ?? [])
  const [vpc, nics] = await Promise.all([
    Vpc.findOne({ _id: vpcId, tenant_id }).lean(),
    Nic.find({ _id: { $in: ids }, tenant_id, vpc_id: vpcId }, { _id: 1 }).lean(),
  ])
  const known = new Set(nics.map(({ _id }) => _id))
  const cidr = parseCidr(vpc?.cidr ?? '')
  return targets.flatMap((target, i) => {
    const { address, nic_id } = target
    const at = `/targets/${i}`
    if ((address === null) === (nic_id === null)) return fault(at, 'has either an address or a nic_id')
    if (targets.slice(0, i).some((other) => isSame(other, target))) return fault(at, 'is listed twice')
    if (nic_id !== null) return fault(`${at}/nic_id`, known.has(nic_id) ? null : 'no such NIC in the VPC')
    const isInside = cidr !== null && contains(cidr, address ?? '')
    return fault(`${at}/address`, isInside ? null : `must be an address of the VPC, ${vpc?.cidr}`)
  })
}

/** A route that another one always precedes would never get a request, and is a mistake. */
async function mustBeReached(route: Written): Promise<void> {
  const match = { host_match: 1, listener_port: 1, path_match: 1, path_match_type: 1, method: 1 }
  const fields = { name: 1, priority: 1, ...match }
  const { tenant_id, lb_id, _id } = route
  const others = await Route.find(
    { tenant_id, lb_id, status: { $ne: 'disabled' }, _id: { $ne: _id } },
    fields,
  ).lean()
  for (const other of others) {
    const [first, second] = hides(other, route) ? [other, route] : [route, other]
    if (!hides(first, second)) continue
    const detail = `No request would reach the route ${second.name}: ${first.name} matches all of its requests and comes first`
    throw new Problem(409, 'route_hidden', 'A route would be hidden', detail, {
      extensions: { errors: [{ pointer: '/priority', message: detail }], route_id: other._id },
    })
  }
}

/** The tenant's load balancer, for lists of its routes. Throws NotFound. */
export const balancerOf = (caller: { tenant_id: string }, id: string) =>
  mine(loadBalancerResource, caller, id)
