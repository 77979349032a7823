import { everyTenant } from '../tenant-scope.ts'
import { Database, type DatabaseDocument } from './databases.ts'
import { DeployServer } from './deploy-servers.ts'
import { machinesOn } from './machine-places.ts'

// The databases that are to run on a host's machines.

export interface DatabaseOnHost {
  database: DatabaseDocument
  machine_id: string
}

/** `only`: of those with these fields. */
export async function databasesOn(
  hostId: string,
  only: Partial<Pick<DatabaseDocument, 'has_users'>> = {},
): Promise<DatabaseOnHost[]> {
  const machines = await machinesOn(hostId)
  if (machines.size === 0) return []
  const servers = await DeployServer.find({ _id: { $in: [...new Set(machines.values())] } }, { nodes: 1 })
    .setOptions(everyTenant)
    .lean()
  const databases = await Database.find({
    deploy_server_id: { $in: servers.map(({ _id }) => _id) },
    runs: true,
    ...only,
  })
    .setOptions(everyTenant)
    .sort({ _id: 1 })
    .lean()
  return databases.flatMap((database) => {
    const server = servers.find(({ _id }) => _id === database.deploy_server_id)
    const machine_id = server?.nodes.find(({ name }) => name === database.volume_node)?.machine_id
    return machine_id && machines.has(machine_id) ? [{ database, machine_id }] : []
  })
}
