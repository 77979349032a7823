import { isDuplicateKey } from '../../models/database.ts'
import { Application } from '../../models/deploy/applications.ts'
import { Database } from '../../models/deploy/databases.ts'
import { Deployment } from '../../models/deploy/deployments.ts'
import { KeptVolumes } from '../../models/deploy/kept-volumes.ts'
import { Service } from '../../models/deploy/services.ts'
import { Tenant } from '../../models/identity/tenants.ts'
import { Operation } from '../../models/operations.ts'
import type { Client, DeployServerBody } from './client.ts'
import { eventually } from './eventually.ts'
import { removeAllOf, tenantWithOwner, type TestTenant } from './tenants.ts'

// The deploy server that files of a run of jest share. docs/decisions/064-a-shared-deploy-server.md says which do, and why others
// have their own.

interface Shared {
  /** With an owner of this file alone. */
  tenant: TestTenant
  server: DeployServerBody
}

/** The tenant of this run of jest: setup.ts chooses its id, which jest's processes inherit. */
const tenantId = (): string => process.env['KEELSON_TEST_SHARED_TENANT'] ?? ''

/** One worker, with room for the databases of two files. A machine with two cores takes no larger one. */
const size = { name: 'shared', worker_instance_type: 'medium', worker_disk_gib: 8 }

let shared: Promise<Shared> | null = null

/**
 * The deploy server that this file shares with others, which may run at the same time. The first caller of a run creates it, and
 * all wait until it is ready. What the file's owner makes there is removed at the end of the file. Names of artifacts and images
 * must be the file's own.
 */
export const sharedServer = (): Promise<Shared> => (shared ??= share())

async function share(): Promise<Shared> {
  const _id = tenantId()
  await new Tenant({ _id, name: `test-${_id}` }).save().catch((error: unknown) => {
    if (!isDuplicateKey(error)) throw error // another file has saved it
  })
  const tenant = await tenantWithOwner(_id)
  const { status, body } = await tenant.owner.deployServers.ask(size) // a tenant has one
  if (status >= 300) throw new Error(`no shared server: ${status} ${JSON.stringify(body)}`)
  const server = await eventually(async () => {
    const now = await tenant.owner.deployServers.get(String(body['id']))
    return now.status !== 'creating' && now
  })
  if (server.status !== 'ready') throw new Error(`no shared server: ${server.status_reason}`)
  return { tenant, server }
}

/** What runs or has volumes. The rest goes with the server: backups, builds, artifacts and applications that were not deployed. */
const removable = [
  { model: Application, path: 'applications', query: '' },
  { model: Service, path: 'services', query: '?delete_volumes=true' },
  { model: Database, path: 'databases', query: '?delete_volumes=true' },
  { model: KeptVolumes, path: 'kept-volumes', query: '' },
]

/** Removes what this file has made on the shared server, also if a test failed before it did. */
export async function removeFromShared(): Promise<void> {
  const file = await shared?.catch(() => null) // its tests have failed with the reason
  if (!file) return
  const { owner, id: tenant_id } = file.tenant
  const { id: requested_by } = await owner.get<{ id: string }>('/api/v1/account')
  const theirs = await Operation.distinct('resource_id', { tenant_id, requested_by })
  // The operation that creates an application is that of its first deployment.
  const applications = await Deployment.distinct('app_id', { _id: { $in: theirs }, tenant_id })
  const made = { _id: { $in: [...theirs, ...applications] }, tenant_id }
  await eventually(async () => {
    const passes = removable.map(async ({ model, path, query }) => {
      const found = await (model as typeof Application).find(made, { _id: 1 }).lean()
      const at = `/api/v1/deploy-servers/${file.server.id}/${path}`
      await Promise.all(found.map(({ _id }) => remove(owner, `${at}/${_id}${query}`)))
      return found.length
    })
    return (await Promise.all(passes)).every((found) => found === 0)
  })
}

/** Throws if it cannot be deleted yet, as while it is backed up. */
async function remove(owner: Client, path: string): Promise<void> {
  const { operation } = await owner.begin('DELETE', path)
  await operation.end()
}

/** Removes the shared server, if this run has one. Fails if anything of it is left. */
export async function removeSharedServer(): Promise<void> {
  if (await Tenant.exists({ _id: tenantId() })) await removeAllOf(await tenantWithOwner(tenantId()))
}
