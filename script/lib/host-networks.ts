import { existsSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { readSettings } from '../../config.ts'
import { removeContainerNetworks } from '../../drivers/docker/network.ts'
import { removeFence } from '../../drivers/linux/fences.ts'
import { makeLinuxNetworks } from '../../drivers/linux/networks.ts'
import type { Layout } from './settings.ts'

/** The id of the host whose credential is in this folder; null before it has enrolled. */
function hostIn(folder: string): string | null {
  const file = join(folder, 'host.json')
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as { host_id: string }).host_id : null
}

/** Removes the VPCs that a host made. `folder` holds its credential; `namespace` is its own, if it has one. */
export async function removeHostNetworks(folder: string, namespace: string | null): Promise<void> {
  const host_id = hostIn(folder)
  if (host_id === null) return
  const stateFolder = join(readSettings('host').KEELSON_NETWORK_STATE, host_id)
  const networks = makeLinuxNetworks({
    host: host_id,
    stateFolder,
    ...(namespace ? { hostNamespace: namespace } : {}),
    underlayAddress: null,
    resolvers: [],
    refused: [],
  })
  const { subnets } = await networks.known()
  for (const { id } of subnets) await networks.removeSubnet(id)
  await rm(stateFolder, { recursive: true, force: true })
}

/** Removes the firewall of a host's containers, once no container is left. */
export async function removeHostFence(folder: string, namespace: string | null): Promise<void> {
  const host = hostIn(folder)
  if (host !== null) await removeFence({ host, namespace })
}

/** The same for the machine, with the network that the host made on an engine that is not the server's own. */
export async function removeMachineFence(layout: Layout, dockerHost: string | null): Promise<void> {
  const folder = join(layout.state, 'host')
  const host = hostIn(folder)
  if (host !== null && dockerHost !== null) await removeContainerNetworks(dockerHost, host)
  await removeHostFence(folder, null)
}

/** Removes the VPCs of the machine itself. */
export const removeMachineNetworks = (layout: Layout): Promise<void> =>
  removeHostNetworks(join(layout.state, 'host'), null)
