import mongoose, { Schema } from 'mongoose'
import { NotFound } from '../../lib/problem.ts'
import { Host } from '../compute/hosts.ts'
import { strangersOn } from '../compute/reservations.ts'
import type { Joining } from '../../lib/deploy-protocol.ts'
import { ensureDeployCredentials } from '../identity/deploy-credentials.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { transaction } from '../database.ts'
import { lockParent, type ParentDocument, parentFields } from '../parents.ts'
import { type By, create } from '../acceptance.ts'
import type { Accepted } from '../operations.ts'
import { defineResource, type ResourceDocument, resourceSchema, wholeFeed } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import type { InstanceType } from './instance-types.ts'
import { chooseMachineKind, type DeployMachineKind } from './machine-providers.ts'

export const deployServerStates = states(
  {
    creating: {},
    ready: { update: 'updating', replace: 'replacing', delete: 'deleting' },
    error: { update: 'updating', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete'] },
)

/** A machine of a deploy server: an instance with a disk and a NIC, all of them managed by the deploy server. */
export interface DeployNode {
  /** `cp`, or `w1` to `w10`. */
  name: string
  /** In the deploy server's subnet. It never changes. */
  ip_address: string
  instance_type: InstanceType
  disk_gib: number
  /** Null until it has been accepted. */
  machine_id: string | null
  disk_id: string | null
  /** It is a member of the Swarm and takes applications. */
  registered: boolean
  /** Since when its host has not answered; null while it does. */
  lost_at: Date | null
  /** The load balancer sends it nothing new where another worker serves: it is about to stop for a moment. */
  resting?: boolean
  /** A new Swarm was formed while its host did not answer, or its Swarm no longer knows it: it joins once the host answers. */
  joins_when_back?: boolean
  /** When the platform last tried to repair it. */
  rescued_at?: Date
}

/** A control plane and workers, on which a tenant's applications run, behind a load balancer of its own. */
export interface DeployServerDocument
  extends ResourceDocument<StateOf<typeof deployServerStates>>,
    ParentDocument {
  worker_count: number
  worker_instance_type: InstanceType
  worker_disk_gib: number
  app_instance_type: InstanceType
  /** What its machines are. It never changes. */
  machine_kind: DeployMachineKind
  vpc_id: string | null
  subnet_id: string | null
  lb_id: string | null
  /** The control plane first, then the workers by number. */
  nodes: DeployNode[]
  /** The token with which a worker joins the Swarm, sealed; `-` for none. */
  join_token_sealed: string
  /** The Swarm's id of its manager: another one is another Swarm. */
  manager_node_id: string | null
  /** The operation that last replaced a machine. */
  replacement_id: string | null
  /** When the platform last tried to repair a machine, or an operation failed. */
  rescued_at: Date | null
  /** The password of the platform at the registry on its worker, sealed; `-`: it has none yet. */
  registry_password_sealed: string
  /** Where the search for the next application's port begins, counted from the first one. */
  next_port: number
  /** What an open operation does now, in plain words. */
  init_step: string | null
}

const { Mixed } = Schema.Types
const schema = resourceSchema<DeployServerDocument>(
  {
    worker_count: { type: Number, required: true },
    worker_instance_type: { type: String, required: true },
    worker_disk_gib: { type: Number, required: true },
    app_instance_type: { type: String, required: true },
    machine_kind: { type: String, required: true },
    vpc_id: { type: String, default: null },
    subnet_id: { type: String, default: null },
    lb_id: { type: String, default: null },
    nodes: { type: [Mixed], default: [] },
    join_token_sealed: { type: String, default: '-' },
    manager_node_id: { type: String, default: null },
    replacement_id: { type: String, default: null },
    rescued_at: { type: Date, default: null },
    registry_password_sealed: { type: String, default: '-' },
    next_port: { type: Number, default: 0 },
    init_step: { type: String, default: null },
    ...parentFields,
  },
  deployServerStates,
  'deploy_servers',
)
schema.index({ 'nodes.machine_id': 1 })
schema.index({ 'nodes.lost_at': 1 })
schema.index({ 'nodes.resting': 1 })
schema.index({ 'nodes.joins_when_back': 1 })
export const DeployServer = mongoose.model<DeployServerDocument>('DeployServer', schema)
export const deployServerResource = defineResource('deploy_server', DeployServer, deployServerStates, {
  feed: wholeFeed,
  // In the transaction that makes it ready, so that a ready deploy server has credentials.
  async comesToRest({ _id, tenant_id, ended }) {
    // A repair that fails after an hour must leave the tenant time for changes.
    const pause = ended === 'failed' ? { rescued_at: new Date() } : {}
    await DeployServer.updateOne({ _id, tenant_id }, { $set: { init_step: null, ...pause } })
    if (await DeployServer.exists({ _id, tenant_id, status: 'ready' }))
      await ensureDeployCredentials({ _id, tenant_id })
  },
})

export const workersAtMost = 10

export type NewDeployServer = Pick<
  DeployServerDocument,
  'name' | 'tags' | 'worker_count' | 'worker_instance_type' | 'worker_disk_gib' | 'app_instance_type'
> & {
  /** Null: the operator's choice. */
  machine_kind: DeployMachineKind | null
}

/**
 * Accepts the tenant's deploy server, or returns the one that it has: a tenant has one. `allowed`: the kinds of machines
 * that the operator allows, the preferred one first. Throws QuotaExceeded, NameTaken and `no_machines`.
 */
export const acceptDeployServer = (
  by: By,
  { machine_kind: asked, ...fields }: NewDeployServer,
  allowed: readonly DeployMachineKind[],
): Promise<Accepted<DeployServerDocument> | { document: DeployServerDocument; operation: null }> =>
  transaction(async () => {
    const { tenant_id } = by
    await lockParent(tenantResource, tenant_id, tenant_id) // one of two creations at once finds the other's
    const there = await DeployServer.findOne({ tenant_id }).lean()
    if (there) return { document: there, operation: null }
    await needQuota(tenant_id, 'max_deploy_servers', 0)
    const hosts = await Host.find({ public_key: { $ne: null } }, { kinds: 1 }).lean()
    const machine_kind = chooseMachineKind(asked, { allowed, offered: hosts.flatMap(({ kinds }) => kinds) })
    return create(by, deployServerResource, {
      fields: { ...fields, machine_kind, ...unmade, nodes: [], turns: 0 },
    })
  }, by.tenant_id)

const unmade = {
  vpc_id: null,
  subnet_id: null,
  lb_id: null,
  join_token_sealed: '-',
  manager_node_id: null,
  replacement_id: null,
  rescued_at: null,
  registry_password_sealed: '-',
  next_port: 0,
  init_step: null,
}

const contextOf = (id: string): string => `deploy_servers.join_token:${id}`
sealedField(DeployServer, 'join_token_sealed', ({ _id }) => contextOf(_id))

/** Keeps what workers need to join the Swarm. */
export async function keepJoining(id: string, { token, manager_node_id }: Joining): Promise<void> {
  const join_token_sealed = await sealSecret(token, contextOf(id))
  const set = { join_token_sealed, manager_node_id }
  await DeployServer.updateOne({ _id: id }, { $set: set }).setOptions(everyTenant)
}

/** Null before the Swarm is formed. */
export const joiningOf = async ({
  _id,
  join_token_sealed,
  manager_node_id,
}: DeployServerDocument): Promise<Joining | null> =>
  manager_node_id === null
    ? null
    : { token: await unsealSecret(join_token_sealed, contextOf(_id)), manager_node_id }

/** The deploy server, for a host that has one of its machines. Throws NotFound. */
export async function deployServerOnHost(hostId: string, _id: string): Promise<DeployServerDocument> {
  const server = await DeployServer.findById(_id).setOptions(everyTenant).lean()
  const machines = server?.nodes.flatMap(({ machine_id }) => machine_id ?? []) ?? []
  if (!server || (await strangersOn(hostId, machines)).length === machines.length)
    throw new NotFound('deploy server')
  return server
}

/** The deploy server, for the host that has its control plane. Throws NotFound. */
export async function controlPlaneOnHost(hostId: string, _id: string): Promise<DeployServerDocument> {
  const server = await DeployServer.findById(_id).setOptions(everyTenant).lean()
  const machine = server?.nodes.find(({ name }) => name === 'cp')?.machine_id
  if (!server || !machine || (await strangersOn(hostId, [machine])).length)
    throw new NotFound('deploy server')
  return server
}
