import { existsSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { readSettings } from '../../config.ts'
import { makeLinuxNetworks } from '../../drivers/linux/networks.ts'
import type { Layout } from './settings.ts'

/** Removes the VPCs that a host made. `folder` holds its credential; `namespace` is its own, if it has one. */
export async function removeHostNetworks(folder: string, namespace: string | null): Promise<void> {
  const file = join(folder, 'host.json')
  if (!existsSync(file)) return
  const { host_id } = JSON.parse(readFileSync(file, 'utf8')) as { host_id: string }
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
  for (const id of subnets) await networks.removeSubnet(id)
  await rm(stateFolder, { recursive: true, force: true })
}

/** Removes the VPCs of the machine itself. */
export const removeMachineNetworks = (layout: Layout): Promise<void> =>
  removeHostNetworks(join(layout.state, 'host'), null)
