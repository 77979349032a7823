import { newId } from '../../lib/ids.ts'
import { mapAtOnce } from '../../lib/queue.ts'
import { allKinds } from '../../models/compute/instance-kinds.ts'
import { Reservation } from '../../models/compute/reservations.ts'
import type { Limits } from '../../models/identity/limits.ts'
import { openSession } from '../../models/identity/session-tokens.ts'
import { Tenant } from '../../models/identity/tenants.ts'
import { User } from '../../models/identity/users.ts'
import { AiDeployment } from '../../models/ai/deployments.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { LoadBalancer } from '../../models/network/load-balancers.ts'
import { RagStore } from '../../models/retrieval/stores.ts'
import { Disk } from '../../models/storage/disks.ts'
import { Client } from './client.ts'
import { engine } from './engine.ts'
import { eventually } from './eventually.ts'

// Tenants and their users, created directly in the database.

export interface TestTenant {
  id: string
  /** A user with all permissions in the tenant. */
  owner: Client
  containers: Client['containers']
  microvms: Client['microvms']
  vms: Client['vms']
  disks: Client['disks']
  /** Makes another user with these roles. */
  user(...roles: string[]): Promise<Client>
  /** The same for disks. */
  storage(): Promise<{ disk_gib: number; reservations: number }>
  /** The quota in use: equal in the tenant's sums and in the single reservations. */
  holds(): Promise<{ cpu_milli: number; memory_mib: number; reservations: number }>
}

const made: TestTenant[] = []

// A tenant may have 2,000 instances, and a request waits 300 s at most for its answer.
const atOnce = 60

export async function makeTenant(limits: Partial<Limits> = {}): Promise<TestTenant> {
  const { _id } = await new Tenant({ name: `test-${newId()}`, limits }).save()
  const tenant = await tenantWithOwner(_id)
  made.push(tenant)
  return tenant
}

/** A tenant that is there, with a new owner. `removeTenants` does not remove it. */
export async function tenantWithOwner(tenant_id: string): Promise<TestTenant> {
  const user = (...roles: string[]) => makeUser(tenant_id, roles)
  const owner = await user('owner')
  return {
    id: tenant_id,
    owner,
    containers: owner.containers,
    microvms: owner.microvms,
    vms: owner.vms,
    // Only an operator chooses the host of a disk.
    disks: {
      ...owner.disks,
      migrate: async (...to) => (await user('owner', 'operator')).disks.migrate(...to),
    },
    user,
    async storage() {
      const reservations = await Reservation.find({ tenant_id, disk_gib: { $gt: 0 } }).lean()
      const { disk_gib = -1 } = (await Tenant.findById(tenant_id).lean())?.usage ?? {}
      const sum = reservations.reduce((all, held) => all + held.disk_gib, 0)
      if (sum !== disk_gib) throw new Error(`the sum says ${disk_gib}, the reservations ${sum}`)
      return { disk_gib, reservations: reservations.length }
    },
    async holds() {
      const { cpu_milli = -1, memory_mib = -1 } = (await Tenant.findById(tenant_id).lean())?.usage ?? {}
      return {
        cpu_milli,
        memory_mib,
        reservations: await Reservation.countDocuments({ tenant_id, disk_gib: { $not: { $gt: 0 } } }),
      }
    },
  }
}

export const holdsNothing = { cpu_milli: 0, memory_mib: 0, reservations: 0 }

/** A logged-in user without a password: the hash is not one that bcrypt makes. */
export async function makeUser(tenant_id: string, roles: string[]): Promise<Client> {
  const user = await new User({
    tenant_id,
    email: `${newId()}@example.com`,
    password_hash: '-',
    roles,
  }).save()
  const { token } = await openSession(user.toObject())
  return new Client(token)
}

/** An operator of the platform, in a new tenant. */
export const makeOperator = async (): Promise<Client> => (await makeTenant()).user('operator')

/** Removes all that the tenants of this file have. Fails if anything of theirs is left. */
export async function removeTenants(): Promise<void> {
  for (const tenant of made.splice(0)) await removeAllOf(tenant)
}

/**
 * Deletes a tenant's deployments of AI workflows, deploy servers, load balancers, stores of retrieval, instances and disks
 * through the API. Fails if anything of the tenant's is left.
 */
export async function removeAllOf(tenant: TestTenant): Promise<void> {
  const primaries = await AiDeployment.find({ tenant_id: tenant.id, role: 'primary' }).lean()
  for (const { workflow_id, status } of primaries)
    if (status !== 'deleting')
      await (await tenant.owner.begin('POST', `/api/v1/workflows/${workflow_id}/undeploy`)).operation.end()
  await eventually(async () => (await AiDeployment.countDocuments({ tenant_id: tenant.id })) === 0)
  const servers = await DeployServer.find({ tenant_id: tenant.id }, { _id: 1, status: 1 }).lean()
  const kept = servers.filter(({ status }) => status !== 'deleting')
  for (const { _id } of kept) await (await tenant.owner.deployServers.delete(_id)).operation.end()
  await eventually(async () => (await DeployServer.countDocuments({ tenant_id: tenant.id })) === 0)
  const balancers = await LoadBalancer.find({ tenant_id: tenant.id }, { _id: 1, status: 1 }).lean()
  const open = balancers.filter(({ status }) => status !== 'deleting')
  const ends = await Promise.all(open.map(({ _id }) => tenant.owner.loadBalancers.delete(_id)))
  await Promise.all(ends.map(({ operation }) => operation.end()))
  await eventually(async () => (await LoadBalancer.countDocuments({ tenant_id: tenant.id })) === 0)
  const stores = await RagStore.find({ tenant_id: tenant.id }, { _id: 1, status: 1 }).lean()
  if (stores.some(({ status }) => status !== 'deleting'))
    await (await tenant.owner.begin('POST', '/api/v1/rag/disable')).operation.end()
  await eventually(async () => (await RagStore.countDocuments({ tenant_id: tenant.id })) === 0)
  for (const { model, kind } of allKinds) {
    const instances = await model.find({ tenant_id: tenant.id }, { _id: 1, status: 1 }).lean()
    const living = instances.filter(({ status }) => status !== 'deleting')
    await mapAtOnce(living, atOnce, async ({ _id }) => {
      await (await tenant.owner.begin('DELETE', `/api/v1/${kind}s/${_id}`)).operation.end()
    })
    await eventually(async () => (await model.countDocuments({ tenant_id: tenant.id })) === 0)
  }
  const disks = await Disk.find({ tenant_id: tenant.id }, { _id: 1, status: 1 }).lean()
  const there = disks.filter(({ status }) => status !== 'deleting')
  const removals = await Promise.all(there.map(({ _id }) => tenant.disks.delete(_id)))
  await Promise.all(removals.map(({ operation }) => operation.end()))
  await eventually(async () => (await Disk.countDocuments({ tenant_id: tenant.id })) === 0)
  // A host removes what has moved away with its next report.
  await eventually(async () => {
    const left = await engine.withLabel('keelson.tenant', tenant.id)
    if (left.length) throw new Error(`left on the engine: ${left.map(({ Names }) => Names.join()).join(' ')}`)
    return true
  })
}
