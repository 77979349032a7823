import { Application } from './applications.ts'
import { BackupExecution } from './backup-executions.ts'
import { Database, type DatabaseDocument, isFilling } from './databases.ts'
import type { DeployServerDocument } from './deploy-servers.ts'
import { findDeployments } from './deployments.ts'
import { Service } from './services.ts'

/** What takes memory and ports on a worker. */
export interface Occupant {
  /** Of the application's replica, of the database, of the service that a container is of, or of the backup. */
  id: string
  node: string
  memory_mib: number
  machine_ports: number[]
}

/** Everything that is to run on the workers of a deploy server, or has a port there. */
export const occupantsOf = async (server: DeployServerDocument): Promise<Occupant[]> =>
  (
    await Promise.all([replicasOf(server), databasesOf(server), containersOf(server), scratchesOf(server)])
  ).flat()

async function replicasOf({ _id, tenant_id }: DeployServerDocument): Promise<Occupant[]> {
  const applications = await Application.find(
    { tenant_id, deploy_server_id: _id, wanted_ids: { $ne: [] } },
    { wanted_ids: 1 },
  ).lean()
  const running = await findDeployments(applications.flatMap(({ wanted_ids }) => wanted_ids))
  return running.flatMap(({ places, memory_mib }) =>
    places.map(({ service_id: id, node, machine_port }) => ({
      id,
      node,
      memory_mib,
      machine_ports: machine_port === null ? [] : [machine_port],
    })),
  )
}

/** A stopped database keeps its port. Its memory is others' until it starts. */
async function databasesOf({ _id, tenant_id }: DeployServerDocument): Promise<Occupant[]> {
  const placed = { tenant_id, deploy_server_id: _id, volume_node: { $ne: null } }
  const databases = await Database.find(placed).lean()
  return databases.map((database) => ({
    id: database._id,
    node: database.volume_node ?? '',
    memory_mib: memoryOf(database),
    machine_ports: database.machine_port === null ? [] : [database.machine_port],
  }))
}

/** With the engine that fills a volume beside it. */
function memoryOf(database: DatabaseDocument): number {
  const { memory_mib, applied, runs, operation_id, refill } = database
  const own = runs || operation_id !== null ? Math.max(memory_mib, applied?.memory_mib ?? 0) : 0
  return own + (runs && refill && isFilling(database) ? refill.memory_mib : 0)
}

/** A stopped service keeps its ports, too. */
async function containersOf({ _id, tenant_id }: DeployServerDocument): Promise<Occupant[]> {
  const placed = { tenant_id, deploy_server_id: _id, volume_node: { $ne: null } }
  const services = await Service.find(placed).lean()
  return services.flatMap(({ _id: id, volume_node, containers, wanted, operation_id }) =>
    containers.map(({ name, memory_mib, ports }) => ({
      id,
      node: volume_node ?? '',
      memory_mib: name in wanted || operation_id !== null ? memory_mib : 0,
      machine_ports: ports.map(({ machine_port }) => machine_port),
    })),
  )
}

/** The engines to which backups are restored for a look. */
async function scratchesOf({ _id, tenant_id }: DeployServerDocument): Promise<Occupant[]> {
  const found = await BackupExecution.find({
    tenant_id,
    deploy_server_id: _id,
    scratch: { $ne: null },
  }).lean()
  return found.flatMap(({ _id: id, scratch }) => (scratch ? [{ id, ...scratch, machine_ports: [] }] : []))
}
