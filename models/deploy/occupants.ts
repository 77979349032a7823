import { Application } from './applications.ts'
import { Database } from './databases.ts'
import type { DeployServerDocument } from './deploy-servers.ts'
import { findDeployments } from './deployments.ts'

/** What takes memory and a port on a worker. */
export interface Occupant {
  /** Of the application's replica, or of the database. */
  id: string
  node: string
  memory_mib: number
  machine_port: number | null
}

/** Everything that is to run on the workers of a deploy server, or has a port there. */
export const occupantsOf = async (server: DeployServerDocument): Promise<Occupant[]> =>
  (await Promise.all([replicasOf(server), databasesOf(server)])).flat()

async function replicasOf({ _id, tenant_id }: DeployServerDocument): Promise<Occupant[]> {
  const applications = await Application.find(
    { tenant_id, deploy_server_id: _id, wanted_ids: { $ne: [] } },
    { wanted_ids: 1 },
  ).lean()
  const running = await findDeployments(applications.flatMap(({ wanted_ids }) => wanted_ids))
  return running.flatMap(({ places, memory_mib }) =>
    places.map(({ service_id: id, node, machine_port }) => ({ id, node, memory_mib, machine_port })),
  )
}

/** A stopped database keeps its port. Its memory is others' until it starts. */
async function databasesOf({ _id, tenant_id }: DeployServerDocument): Promise<Occupant[]> {
  const placed = { tenant_id, deploy_server_id: _id, volume_node: { $ne: null } }
  const databases = await Database.find(placed).lean()
  return databases.flatMap(
    ({ _id: id, volume_node, machine_port, memory_mib, applied, runs, operation_id }) =>
      volume_node === null
        ? []
        : [
            {
              id,
              node: volume_node,
              memory_mib: runs || operation_id !== null ? Math.max(memory_mib, applied?.memory_mib ?? 0) : 0,
              machine_port,
            },
          ],
  )
}
