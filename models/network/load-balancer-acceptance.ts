import type { HealthCheckSpec, ListenerSpec } from '../../drivers/load-balancers.ts'
import { type InputError, InvalidInput, NotFound } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { noteFormerHost } from '../compute/log-archive.ts'
import { notPublished } from '../compute/ports.ts'
import { hostsOf, release, Reservation, reserve } from '../compute/reservations.ts'
import { transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { mine } from '../resources.ts'
import { lockCertificate } from './certificates.ts'
import {
  LoadBalancer,
  type LoadBalancerDocument,
  loadBalancerResource,
  Replica,
  replicaSize,
  replicasOf,
} from './load-balancers.ts'
import { releaseNics, takeNics } from './nics.ts'
import { subnetResource } from './subnets.ts'

// The acceptance rules for operations on load balancers.

type NewLoadBalancer = Pick<
  LoadBalancerDocument,
  'name' | 'tags' | 'subnet_id' | 'listeners' | 'health_check' | 'replicas' | 'log_cap_mib'
> & { managed_by?: string | null }

type AcceptedLoadBalancer = Promise<Accepted<LoadBalancerDocument>>

/** Throws InvalidInput, QuotaExceeded, NameTaken and the 409s of subnets. */
export const acceptLoadBalancer = (
  by: By,
  { managed_by = null, ...fields }: NewLoadBalancer,
): AcceptedLoadBalancer =>
  transaction(async () => {
    const { tenant_id } = by
    const { vpc_id } = await referred('/subnet_id', () =>
      lockParent(subnetResource, tenant_id, fields.subnet_id),
    )
    await check(tenant_id, fields)
    await lockParent(tenantResource, tenant_id, tenant_id)
    await needQuota(tenant_id, 'max_load_balancers', await LoadBalancer.countDocuments({ tenant_id }))
    return create(by, loadBalancerResource, {
      fields: { ...fields, vpc_id, endpoints: [], turns: 0 },
      managed_by,
      reserve: (balancer) => takeReplicas(balancer),
    })
  }, by.tenant_id)

type Changes = {
  [Field in 'tags' | 'listeners' | 'health_check' | 'replicas' | 'log_cap_mib']?:
    | LoadBalancerDocument[Field]
    | undefined
}

/** Throws as `begin`, InvalidInput and QuotaExceeded. */
export const acceptLoadBalancerUpdate = (by: By, id: string, changes: Changes): AcceptedLoadBalancer =>
  transaction(async () => {
    const given = Object.entries(changes).filter(([, value]) => value !== undefined)
    const set = Object.fromEntries(given) as Partial<LoadBalancerDocument>
    const { replicas } = await mine(loadBalancerResource, by, id)
    await check(by.tenant_id, set)
    return begin(by, loadBalancerResource, id, 'update', {
      input: { replicas_before: replicas },
      set,
      reserve: takeReplicas,
    })
  }, by.tenant_id)

/**
 * `from_host_id`: the host of the replica to move; null: the oldest one's. `host_id`: an operator's choice; null: the
 * platform chooses. Throws as `begin`, and InvalidInput if no replica is on that host.
 */
export const acceptLoadBalancerReschedule = (
  by: By,
  id: string,
  input: { from_host_id: string | null; host_id: string | null },
): AcceptedLoadBalancer =>
  transaction(async () => {
    await mine(loadBalancerResource, by, id)
    const replicas = await replicasOf(id)
    const from = input.from_host_id ?? replicas[0]?.host_id
    const moving = replicas.find(({ host_id }) => host_id !== null && host_id === from)
    if (!moving) throw mistake('/from_host_id', 'no replica of the load balancer is on this host')
    if (replicas.some(({ host_id }) => host_id !== null && host_id === input.host_id))
      throw mistake('/host_id', 'a replica of the load balancer is on this host already')
    return begin(by, loadBalancerResource, id, 'reschedule', {
      input: { replica_id: moving._id, host_id: input.host_id },
    })
  }, by.tenant_id)

accepts(loadBalancerResource, {
  create: acceptLoadBalancer,
  verbs: { update: acceptLoadBalancerUpdate, reschedule: acceptLoadBalancerReschedule },
})

/** Takes quota for each replica that has none, and a NIC for each that the load balancer does not have yet. */
async function takeReplicas({
  _id,
  tenant_id,
  name,
  subnet_id,
  replicas,
  managed_by,
}: LoadBalancerDocument): Promise<void> {
  const there = await replicasOf(_id)
  const ids = there.map((replica) => replica._id)
  for (const replicaId of ids.slice(0, replicas))
    await reserve(replicaId, tenant_id, replicaSize, { ownerId: _id })
  for (let count = there.length; count < replicas; count++) {
    const replica = await new Replica({ tenant_id, load_balancer_id: _id }).save()
    await reserve(replica._id, tenant_id, replicaSize, { ownerId: _id })
    const kind = 'load_balancer' as const
    const member = { id: replica._id, kind, name, tenant_id, managed_by, namesakes: ids }
    await takeNics(member, [{ id: null, subnet_id, ip_address: null }])
    ids.push(replica._id)
  }
}

/** Releases the quota and room of a replica. Its host may send its log later. Idempotent. */
export async function releaseReplica(id: string, tenant_id: string): Promise<void> {
  await transaction(async () => {
    const held = await Reservation.findOne({ _id: id, tenant_id }).lean()
    for (const hostId of held ? hostsOf(held) : [])
      await noteFormerHost(held?.owner_id ?? '', tenant_id, hostId)
    await release(id)
  }, tenant_id)
}

/** Releases what a replica holds, and deletes its record. Idempotent. */
export async function dropReplica(id: string, tenant_id: string): Promise<void> {
  await transaction(async () => {
    await releaseReplica(id, tenant_id)
    await releaseNics(id)
    await Replica.deleteOne({ _id: id, tenant_id })
  }, tenant_id)
}

interface Described {
  listeners?: ListenerSpec[]
  health_check?: HealthCheckSpec
}

/** Checks what the API's types cannot, and locks the certificates in use. Throws InvalidInput. */
async function check(tenantId: string, { listeners = [], health_check }: Described): Promise<void> {
  const errors: InputError[] = []
  const say = (pointer: string, message: string) => errors.push({ pointer, message })
  listeners.forEach(({ port, host_port, protocol, certificate_ids, redirect_to_https }, i) => {
    const at = `/listeners/${i}`
    const others = listeners.slice(0, i)
    if (others.some((other) => other.port === port)) say(`${at}/port`, 'another listener has this port')
    if (host_port !== null && others.some((other) => other.host_port === host_port))
      say(`${at}/host_port`, 'another listener has this host port')
    const hasTls = protocol === 'https' || protocol === 'tls'
    if (hasTls && certificate_ids.length === 0)
      say(`${at}/certificate_ids`, `a listener with ${protocol} needs a certificate`)
    if (!hasTls && certificate_ids.length)
      say(`${at}/certificate_ids`, 'only listeners with https or tls have certificates')
    if (new Set(certificate_ids).size < certificate_ids.length)
      say(`${at}/certificate_ids`, 'the same certificate is listed twice')
    if (redirect_to_https && protocol !== 'http')
      say(`${at}/redirect_to_https`, 'only an http listener can redirect to https')
    if (redirect_to_https && !listeners.some((other) => other.protocol === 'https'))
      say(`${at}/redirect_to_https`, 'the load balancer has no https listener')
  })
  if (health_check && health_check.timeout_sec > health_check.interval_sec)
    say('/health_check/timeout_sec', 'must not be longer than interval_sec')
  if (health_check && health_check.path === null && health_check.expect_status !== null)
    say('/health_check/expect_status', 'needs a path: a TCP connection has no status')
  errors.push(
    ...(await notPublished(
      listeners.flatMap(({ host_port: port }, i) =>
        port !== null && browsersPorts.includes(port) ? [] : { pointer: `/listeners/${i}/host_port`, port },
      ),
    )),
  )
  if (errors.length) throw new InvalidInput(422, errors)
  for (const [i, { certificate_ids }] of listeners.entries())
    for (const [j, id] of certificate_ids.entries())
      await referred(`/listeners/${i}/certificate_ids/${j}`, () => lockCertificate(tenantId, id))
}

/** Of HTTP and HTTPS: each host offers these to its load balancers. */
const browsersPorts = [80, 443]

const mistake = (pointer: string, message: string) => new InvalidInput(422, [{ pointer, message }])

/** Finds a record that the body refers to. Throws InvalidInput instead of NotFound. */
export async function referred<T>(pointer: string, find: () => Promise<T>): Promise<T> {
  try {
    return await find()
  } catch (error) {
    if (error instanceof NotFound) throw mistake(pointer, error.message)
    throw error
  }
}
