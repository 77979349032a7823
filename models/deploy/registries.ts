import { randomBytes } from 'node:crypto'
import type { RegistryLogin, RegistryOnHost } from '../../lib/deploy-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { strangersOn } from '../compute/reservations.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant } from '../tenant-scope.ts'
import { builder } from './artifacts.ts'
import { DeployServer, type DeployServerDocument } from './deploy-servers.ts'

// The registry of a deploy server keeps the images of its builds, on the worker that builds.

// The address of the worker that builds, which never changes.
const ip_address = '10.77.0.11'
const port = 5000
/** How the machines of a deploy server reach its registry, in the names of its images. */
export const registryAddress = `${ip_address}:${port}`

const contextOf = (id: string): string => `deploy_servers.registry_password:${id}`
sealedField(DeployServer, 'registry_password_sealed', ({ _id }) => contextOf(_id))

/** Gives the registry its password. Idempotent. */
export async function makeRegistryPassword(_id: string): Promise<void> {
  const registry_password_sealed = await sealSecret(randomBytes(32).toString('base64url'), contextOf(_id))
  const without = { _id, registry_password_sealed: '-' }
  await DeployServer.updateOne(without, { $set: { registry_password_sealed } }).setOptions(everyTenant)
}

/** How the platform itself signs in. Null before the first build. */
export async function platformLogin({
  _id,
  registry_password_sealed,
}: DeployServerDocument): Promise<RegistryLogin | null> {
  if (registry_password_sealed === '-') return null
  return { name: 'platform', password: await unsealSecret<string>(registry_password_sealed, contextOf(_id)) }
}

/** The registry, with all its users. Throws NotFound before the first build. */
export async function registryOf(server: DeployServerDocument, image: string): Promise<RegistryOnHost> {
  const login = await platformLogin(server)
  if (!login) throw new NotFound('registry')
  return { image, ip_address, port, users: [login] }
}

/** The deploy server, for the host that has its worker that builds. Throws NotFound. */
export async function builderOnHost(hostId: string, _id: string): Promise<DeployServerDocument> {
  const server = await DeployServer.findById(_id).setOptions(everyTenant).lean()
  const machine = server?.nodes.find(({ name }) => name === builder)?.machine_id
  if (!server || !machine || (await strangersOn(hostId, [machine])).length)
    throw new NotFound('deploy server')
  return server
}
