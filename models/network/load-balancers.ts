import mongoose, { Schema } from 'mongoose'
import type { HealthCheckSpec, ListenerSpec, LoadBalancerState } from '../../drivers/load-balancers.ts'
import { Problem } from '../../lib/problem.ts'
import type { Size } from '../identity/tenants.ts'
import { type ParentDocument, parentFields } from '../parents.ts'
import {
  defineResource,
  documentOptions,
  idField,
  keptBy,
  type ResourceDocument,
  resourceSchema,
  wholeFeed,
} from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { certificateResource } from './certificates.ts'
import { Nic } from './nics.ts'
import { subnetResource } from './subnets.ts'

export const loadBalancerStates = states(
  {
    creating: {},
    running: { update: 'updating', reschedule: 'rescheduling', delete: 'deleting' },
    unreachable: { update: 'updating', reschedule: 'rescheduling', delete: 'deleting' },
    error: { update: 'updating', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete'] },
)

/** Where clients reach one replica. */
export interface Endpoint {
  host_id: string
  host_address: string
  /** Its address in the VPC. */
  ip_address: string
  state: ReplicaDocument['state']
  ports: LoadBalancerState['ports']
}

/** Publishes members of a VPC at host addresses. Its routes are records of their own (load-balancer-routes.ts). */
export interface LoadBalancerDocument
  extends ResourceDocument<StateOf<typeof loadBalancerStates>>,
    ParentDocument {
  subnet_id: string
  vpc_id: string
  listeners: ListenerSpec[]
  health_check: HealthCheckSpec
  /** How many hosts run it. */
  replicas: number
  log_cap_mib: number
  /** A copy from the replicas, for lists. */
  endpoints: Endpoint[]
}

const Mixed = Schema.Types.Mixed
const schema = resourceSchema<LoadBalancerDocument>(
  {
    subnet_id: { type: String, required: true },
    vpc_id: { type: String, required: true },
    listeners: { type: [Mixed], required: true },
    health_check: { type: Mixed, required: true },
    replicas: { type: Number, required: true },
    log_cap_mib: { type: Number, required: true },
    endpoints: { type: [Mixed], default: [] },
    ...parentFields,
  },
  loadBalancerStates,
  'load_balancers',
)
schema.index({ 'listeners.certificate_ids': 1 })
export const LoadBalancer = mongoose.model<LoadBalancerDocument>('LoadBalancer', schema)

export const loadBalancerResource = defineResource('load_balancer', LoadBalancer, loadBalancerStates, {
  feed: wholeFeed,
})

/** What each replica reserves of its tenant's quota and of its host. */
export const replicaSize: Size = { cpu_milli: 200, memory_mib: 128, disk_gib: 0 }

/** One load balancer on one host. It has its own reservation and NIC, under its id. */
export interface ReplicaDocument {
  _id: string
  tenant_id: string
  load_balancer_id: string
  /** The host that is to run it: during a move already the new one. Null before it is placed. */
  host_id: string | null
  /** As its host reported it last. */
  state: 'starting' | 'running' | 'broken' | 'unreachable'
  ports: LoadBalancerState['ports']
  refused: LoadBalancerState['refused']
  left_out: LoadBalancerState['left_out']
  targets: LoadBalancerState['targets']
  /** When the platform last began to move it away from a lost host. */
  rescued_at: Date | null
  created_at: Date
  updated_at: Date
}

const replicaSchema = new Schema<ReplicaDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    load_balancer_id: { type: String, required: true },
    host_id: { type: String, default: null },
    state: { type: String, default: 'starting' },
    ports: { type: Mixed, default: [] },
    refused: { type: Mixed, default: [] },
    left_out: { type: Mixed, default: [] },
    targets: { type: Mixed, default: [] },
    rescued_at: { type: Date, default: null },
  },
  { ...documentOptions, collection: 'load_balancer_replicas' },
)
tenantScoped(replicaSchema)
replicaSchema.index({ load_balancer_id: 1 })
// A host runs at most one replica of a load balancer.
replicaSchema.index(
  { host_id: 1, load_balancer_id: 1 },
  { unique: true, partialFilterExpression: { host_id: { $type: 'string' } } },
)
export const Replica = mongoose.model<ReplicaDocument>('LoadBalancerReplica', replicaSchema)

/** The replicas of these load balancers, oldest first. */
export const replicasOf = (...ids: string[]): Promise<ReplicaDocument[]> =>
  Replica.find({ load_balancer_id: { $in: ids } })
    .setOptions(everyTenant)
    .sort({ _id: 1 })
    .lean()

/** The tenant's load balancers that answer ACME challenges: those with an http listener. */
export const answeringChallenges = (tenant_id: string): Promise<LoadBalancerDocument[]> =>
  LoadBalancer.find({ tenant_id, 'listeners.protocol': 'http', status: { $ne: 'deleting' } })
    .sort({ _id: 1 })
    .lean()

keptBy(certificateResource, async ({ _id, tenant_id }) => {
  const users = await LoadBalancer.countDocuments({ tenant_id, 'listeners.certificate_ids': _id })
  if (users) throw inUse('certificate', `${users} load balancers use the certificate`)
})

// Its NICs keep a subnet too, but only as long as it has any.
keptBy(subnetResource, async ({ _id, tenant_id }) => {
  const users = await LoadBalancer.countDocuments({ tenant_id, subnet_id: _id })
  if (users) throw inUse('subnet', `The subnet has ${users} load balancers`)
})

export const inUse = (what: string, detail: string): Problem =>
  new Problem(409, `${what.toLowerCase().replaceAll(' ', '_')}_in_use`, `The ${what} is in use`, detail)

/** The addresses of these replicas in their VPC. */
export async function addressesOf(replicaIds: string[]): Promise<Map<string, string>> {
  const nics = await Nic.find({ instance_id: { $in: replicaIds } })
    .setOptions(everyTenant)
    .lean()
  return new Map(nics.map(({ instance_id, ip_address }) => [instance_id, ip_address]))
}
