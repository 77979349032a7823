import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { hostsOfMachines } from '../../models/deploy/machine-places.ts'
import type { StorageOwner } from '../../models/deploy/storages.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

// The volumes of applications and other owners of storages, for their workflows.

/** The worker that has an owner's volumes, with its machine's host. */
export interface PlaceOfVolumes {
  host_id: string
  machine_id: string
}

/** The volumes that are to stay, and where they are. */
export interface WantedVolumes extends PlaceOfVolumes {
  names: string[]
  /** How long the containers that use the others may take to end. */
  within_sec: number
}

/**
 * Within how many seconds the containers of a service end that is no longer wanted: its grace, and what the engines take. Only
 * the control plane tells a worker that they are to end. Where all volumes go, one that has just ended has time to be back.
 */
export const endWithinSec = (graceSec: number, keepsAny: boolean): number => graceSec + (keepsAny ? 30 : 180)

/** Null if the owner has no volumes, or their worker is on no host. */
export async function placeOfVolumes({
  deploy_server_id,
  volume_node,
}: StorageOwner): Promise<PlaceOfVolumes | null> {
  if (volume_node === null) return null
  const server = await DeployServer.findById(deploy_server_id).setOptions(everyTenant).lean()
  const machine_id = server?.nodes.find(({ name }) => name === volume_node)?.machine_id
  const host_id = machine_id && (await hostsOfMachines([machine_id])).get(machine_id)
  return machine_id && host_id ? { host_id, machine_id } : null
}
