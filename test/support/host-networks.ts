import { makeLinuxNetworks } from '../../drivers/linux/networks.ts'
import { linksOf, run } from '../../drivers/linux/commands.ts'
import { Names } from '../../drivers/linux/names.ts'
import { isNamespace } from '../../drivers/linux/namespaces.ts'
import type { NetworkThing } from '../../drivers/networks.ts'
import { readSettings } from '../../config.ts'
import { Subnet } from '../../models/network/subnets.ts'
import { Nic } from '../../models/network/nics.ts'
import { shortHash } from '../../script/lib/settings.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { allHosts, type TestHost } from './hosts.ts'
import { layout } from './stack.ts'
import { join } from 'node:path'

// A host's networks according to the machine, not to the platform's records.

const index = ({ roles }: TestHost): number => Number(/-(\d+)$/.exec(roles.host)?.[1] ?? 1)

/** The host's network namespace; null for this machine. */
export const namespaceOf = (host: TestHost): string | null =>
  index(host) > 1 ? `kl-${shortHash(layout.state)}-${index(host) - 1}` : null

/** Everything that a host's driver has made and not yet removed. */
export const networkThings = (host: TestHost): Promise<NetworkThing[]> =>
  makeLinuxNetworks({
    host: host.id,
    stateFolder: join(readSettings('host').KEELSON_NETWORK_STATE, host.id),
    ...hostNamespace(host),
    underlayAddress: null,
    resolvers: [],
    refused: [],
  }).list()

const hostNamespace = (host: TestHost): { hostNamespace?: string } => {
  const namespace = namespaceOf(host)
  return namespace ? { hostNamespace: namespace } : {}
}

/** What the stack's hosts have of these VPCs and subnets. */
export async function networksOf(ids: string[]): Promise<NetworkThing[]> {
  const all = await Promise.all((await allHosts()).map(networkThings))
  return all.flat().filter(({ of }) => of.id !== null && ids.includes(of.id))
}

/** Throws if the host still has networks of a tenant that has none. */
export async function expectNoNetworks(host: TestHost, tenantId: string): Promise<true> {
  const subnets = await Subnet.find({ tenant_id: tenantId }).lean()
  const ids = new Set(subnets.flatMap(({ _id, vpc_id }) => [_id, vpc_id]))
  const left = (await networkThings(host)).filter(({ of }) => of.id !== null && ids.has(of.id))
  if (left.length) throw new Error(`left on ${host.name}: ${JSON.stringify(left)}`)
  return true
}

/** Kills the subnet's resolver and deletes its VPC's namespace on that host, as a reboot does. */
export async function removeVpcBehindItsBack(host: TestHost, subnetId: string): Promise<void> {
  const subnet = await Subnet.findById(subnetId).setOptions(everyTenant).lean()
  const namespace = new Names(host.id).vpc(subnet?.vpc_id ?? '')
  if (!(await isNamespace(namespace))) throw new Error(`${host.name} has no such VPC`)
  for (const { kind, name, of } of await networkThings(host))
    if (kind === 'process' && of.id === subnetId) process.kill(Number(name), 'SIGKILL')
  const links = [...(await linksOf(namespace)).keys()].filter((link) => link !== 'lo')
  for (const link of links) await run('ip', ['-n', namespace, 'link', 'delete', link]).catch(() => '')
  await run('ip', ['netns', 'delete', namespace])
}

/** NICs on hosts that no record knows, and namespaces of VPCs without members there. */
export async function strayNics(hosts: TestHost[]): Promise<NetworkThing[]> {
  const known = new Set(await Nic.distinct('_id').setOptions(everyTenant))
  const things = (await Promise.all(hosts.map(networkThings))).flat()
  return things.filter(({ of }) => of.kind === 'nic' && !(of.id && known.has(of.id)))
}
