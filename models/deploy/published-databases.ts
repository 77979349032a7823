import { Problem } from '../../lib/problem.ts'
import { Certificate, createCertificate } from '../network/certificates.ts'
import { everyTenant } from '../tenant-scope.ts'
import { type Balanced, inTurn, lead, targetsAt, unroute } from './application-routes.ts'
import { Database, type DatabaseDocument } from './databases.ts'
import { tlsKeyOf } from './database-tls.ts'
import { engineOf } from './engines/index.ts'
import { ingressOf } from './ingress.ts'

// Databases that clients outside of the deploy server reach by TLS: each has a listener of the load balancer, and a route that
// leads from there to the worker.

/** On the load balancer's address in the deploy server's network. Above those of workers' databases and services. */
const firstPort = 50_000
/** Connections are closed after a day without data, as most pools close theirs sooner. */
const idleSec = 86_400
const drainSec = 10

/** Names of domains and services have no such end. */
const routeName = ({ name }: DatabaseDocument): string => `${name}.-database`

const certificateName = (id: string): string => `database-${id.slice(-12)}`

/** Gives a database a listener of its own, and has it lead to its worker. Idempotent. Throws QuotaExceeded, `no_load_balancer`. */
export async function publish(database: DatabaseDocument): Promise<void> {
  const { _id, tenant_id, deploy_server_id, type } = database
  const certificate_id =
    engineOf(type).outside.tls === 'load_balancer' ? await certificateFor(database) : null
  const done = await inTurn(deploy_server_id, async () => {
    const present = await Database.findOne({ _id, tenant_id }).lean()
    if (!present || present.published) return true
    const siblings = await Database.find({ tenant_id, deploy_server_id, published: { $ne: null } }).lean()
    const taken = new Set(siblings.map(({ published }) => published?.listener_port))
    let listener_port = firstPort
    while (taken.has(listener_port)) listener_port++
    await Database.updateOne({ _id, tenant_id }, { $set: { published: { listener_port, certificate_id } } })
    return true
  })
  if (!done) throw new Problem(409, 'no_load_balancer', 'The deploy server has no load balancer')
  await leadClients(_id)
}

/** Has the route of a published database lead to where it is now. Null if no clients are led to it. Idempotent. */
export async function leadClients(id: string): Promise<Balanced | null> {
  const known = await Database.findById(id).setOptions(everyTenant).lean()
  if (!known?.published) return null
  const { tenant_id, deploy_server_id } = known
  return inTurn(deploy_server_id, async ({ nodes }, lbId) => {
    const database = await Database.findOne({ _id: id, tenant_id }).lean()
    const address = nodes.find(({ name }) => name === database?.volume_node)?.ip_address
    if (!database?.published || !address || database.machine_port === null) return null
    const { machine_port: backend_port, published } = database
    const targets = [{ address, nic_id: null, port: backend_port, weight: 1 }]
    const first = {
      name: routeName(database),
      host_match: null,
      listener_port: published.listener_port,
      idle_timeout_sec: idleSec,
    }
    const its = { targets, backend_port, drain_timeout_sec: drainSec }
    const route = await lead(tenant_id, lbId, first, its)
    return { lb_id: lbId, targets: targetsAt(route, [{ ip_address: address, machine_port: backend_port }]) }
  })
}

/** Leads no client to it any more. The certificate stays until no listener uses it. Idempotent. */
export async function unpublish(database: DatabaseDocument): Promise<void> {
  const { _id, tenant_id, deploy_server_id } = database
  await inTurn(deploy_server_id, (_, lbId) => unroute(tenant_id, lbId, routeName(database)))
  await Database.updateOne({ _id, tenant_id }, { $set: { published: null } })
}

/** The certificate by which the load balancer answers for a database. Null: there is none. */
export async function certificateOfDatabase({
  _id,
  tenant_id,
}: Pick<DatabaseDocument, '_id' | 'tenant_id'>): Promise<string | null> {
  const found = await Certificate.findOne({ tenant_id, name: certificateName(_id) }, { _id: 1 }).lean()
  return found?._id ?? null
}

/** The certificates of all databases of a deploy server. */
export async function certificatesOfDatabases(deploy_server_id: string): Promise<string[]> {
  const found = await Database.find({ deploy_server_id }, { tenant_id: 1 }).setOptions(everyTenant).lean()
  return (await Promise.all(found.map(certificateOfDatabase))).flatMap((id) => id ?? [])
}

async function certificateFor(database: DatabaseDocument): Promise<string> {
  const { _id, tenant_id, tls_certificate: certificate_pem } = database
  const there = await certificateOfDatabase(database)
  if (there) return there
  const private_key_pem = await tlsKeyOf(database)
  const made = { name: certificateName(_id), tags: {}, certificate_pem, private_key_pem }
  return (await createCertificate(tenant_id, made))._id
}

/** Where clients outside reach the databases of one deploy server, by their ids. */
export async function publicAddresses(
  databases: DatabaseDocument[],
): Promise<Map<string, { host: string; port: number }>> {
  const [first] = databases.filter(({ published }) => published)
  const endpoints = first ? ((await ingressOf(first))?.endpoints ?? []) : []
  const at = ({ published }: DatabaseDocument) =>
    endpoints.flatMap(({ state, host_address: host, ports }) => {
      const bound = ports.find(({ port }) => port === published?.listener_port)
      return bound && state === 'running' ? [{ host, port: bound.host_port }] : []
    })[0]
  return new Map(
    databases.flatMap((database) => {
      const address = at(database)
      return address ? [[database._id, address] as const] : []
    }),
  )
}
