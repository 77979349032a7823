import { isDeepStrictEqual } from 'node:util'
import { Certificate } from '../network/certificates.ts'
import { LoadBalancer, type LoadBalancerDocument } from '../network/load-balancers.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Database } from './databases.ts'
import { DeployServer } from './deploy-servers.ts'
import { Domain } from './domains.ts'
import { engineOf } from './engines/index.ts'

// What the load balancer of a deploy server listens on.

/** The load balancer of a deploy server. Null while there is none. */
export async function ingressOf({
  deploy_server_id,
  tenant_id,
}: {
  deploy_server_id: string
  tenant_id: string
}): Promise<LoadBalancerDocument | null> {
  const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
  return server?.lb_id ? LoadBalancer.findOne({ _id: server.lb_id, tenant_id }).lean() : null
}

type Listeners = LoadBalancerDocument['listeners']

/**
 * What the ingress of a deploy server is to listen on, by the certificates of its domains and its published databases. Null:
 * it does so already.
 */
export async function wantedListeners(
  deployServerId: string,
): Promise<{ lb_id: string; listeners: Listeners } | null> {
  const server = await DeployServer.findById(deployServerId).setOptions(everyTenant).lean()
  if (!server) return null
  const balancer = await ingressOf({ deploy_server_id: deployServerId, tenant_id: server.tenant_id })
  if (!balancer || balancer.status === 'deleting') return null
  const { _id: lb_id, listeners: present } = balancer
  const listeners = [
    ...present.filter(({ protocol }) => protocol === 'http'),
    ...(await secureListener(balancer, deployServerId)),
    ...(await databaseListeners(balancer, deployServerId)),
  ]
  return isDeepStrictEqual(listeners, present) ? null : { lb_id, listeners }
}

const firstSecure: Listeners[number] = {
  port: 443,
  host_port: null,
  protocol: 'https',
  certificate_ids: [],
  redirect_to_https: false,
}

async function secureListener(
  { tenant_id, listeners }: LoadBalancerDocument,
  deploy_server_id: string,
): Promise<Listeners> {
  const secured = { tenant_id, deploy_server_id, certificate_id: { $ne: null } }
  const domains = await Domain.find({ ...secured, status: { $ne: 'deleting' } })
    .sort({ _id: 1 })
    .lean()
  const asked = domains.flatMap(({ certificate_id }) => certificate_id ?? [])
  const issued = await Certificate.find({ _id: { $in: asked }, tenant_id, fingerprint: { $ne: null } }).lean()
  const certificate_ids = asked.filter((id) => issued.some(({ _id }) => _id === id))
  if (certificate_ids.length === 0) return []
  const its = listeners.find(({ protocol }) => protocol === 'https') ?? firstSecure
  // In the order that it has them: the first is for clients without SNI.
  const kept = its.certificate_ids.filter((id) => certificate_ids.includes(id))
  return [{ ...its, certificate_ids: [...kept, ...certificate_ids.filter((id) => !kept.includes(id))] }]
}

async function databaseListeners(
  { tenant_id, listeners }: LoadBalancerDocument,
  deploy_server_id: string,
): Promise<Listeners> {
  const published = await Database.find({ tenant_id, deploy_server_id, published: { $ne: null } })
    .sort({ _id: 1 })
    .lean()
  return published.flatMap(({ type, published: its }) => {
    if (!its) return []
    const { listener_port: port, certificate_id } = its
    const protocol = engineOf(type).outside.tls === 'load_balancer' ? ('tls' as const) : ('tcp' as const)
    const host_port = listeners.find((one) => one.port === port)?.host_port ?? null
    const certificate_ids = certificate_id === null ? [] : [certificate_id]
    return [{ port, host_port, protocol, certificate_ids, redirect_to_https: false }]
  })
}
