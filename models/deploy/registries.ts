import { randomBytes } from 'node:crypto'
import type { RegistryLogin, RegistryOnHost } from '../../lib/deploy-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { strangersOn } from '../compute/reservations.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant } from '../tenant-scope.ts'
import { builder } from './artifacts.ts'
import { DeployServer, type DeployServerDocument } from './deploy-servers.ts'

// The registries of a deploy server: the worker that builds has one, and the control plane has one with copies of the same
// images (image-copies.ts).

/** The machines with registries, by the names of their nodes: the one that workers pull from first. */
export const registryNodes = [builder, 'cp'] as const
export type RegistryNode = (typeof registryNodes)[number]

// Addresses of nodes never change.
const addresses: Record<RegistryNode, string> = { w1: '10.77.0.11', cp: '10.77.0.10' }
const port = 5000
/** How the machines of a deploy server reach a registry, in the names of its images. */
export const registryAddress = (node: RegistryNode): string => `${addresses[node]}:${port}`

/** An image that a build has made, as a worker pulls it: by its digest. */
export const builtImage = (image: string, digest: string, from: RegistryNode = builder): string =>
  `${registryAddress(from)}/${image.replace(/:[^:/]*$/, '')}@${digest}`

export const otherRegistry = (node: RegistryNode): RegistryNode => (node === builder ? 'cp' : builder)

export const isRegistryNode = (name: string): name is RegistryNode =>
  (registryNodes as readonly string[]).includes(name)

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

/** A registry, with all its users. Throws NotFound before the first build. */
export async function registryOf(
  server: DeployServerDocument,
  image: string,
  node: RegistryNode = builder,
): Promise<RegistryOnHost> {
  const login = await platformLogin(server)
  if (!login) throw new NotFound('registry')
  return { image, ip_address: addresses[node], port, users: [login] }
}

/** The deploy server, for the host that has its worker that builds. Throws NotFound. */
export async function builderOnHost(hostId: string, _id: string): Promise<DeployServerDocument> {
  const server = await DeployServer.findById(_id).setOptions(everyTenant).lean()
  const machine = server?.nodes.find(({ name }) => name === builder)?.machine_id
  if (!server || !machine || (await strangersOn(hostId, [machine])).length)
    throw new NotFound('deploy server')
  return server
}

/** The deploy server and the node of a machine with a registry, for the host that has it. Throws NotFound. */
export async function registryOnHost(
  hostId: string,
  _id: string,
  machineId: string,
): Promise<{ server: DeployServerDocument; node: RegistryNode }> {
  const server = await DeployServer.findById(_id).setOptions(everyTenant).lean()
  const name = server?.nodes.find(({ machine_id }) => machine_id === machineId)?.name ?? ''
  if (!server || !isRegistryNode(name) || (await strangersOn(hostId, [machineId])).length)
    throw new NotFound('deploy server')
  return { server, node: name }
}
