import type { ReplicaReport } from '../../lib/deploy-protocol.ts'
import { noteOnce } from '../activity.ts'
import { ownersOn } from '../compute/reservations.ts'
import { storeSamples } from '../compute/samples.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Application } from './applications.ts'
import { Database } from './databases.ts'
import { storeDatabaseSamples } from './database-samples.ts'
import { DeployServer, type DeployServerDocument } from './deploy-servers.ts'
import { findDeployments, type Place } from './deployments.ts'
import { Service } from './services.ts'

/** A replica of an application, or a database, that is to run. */
interface Wanted extends Pick<Place, 'node' | 'machine_id'> {
  tenant_id: string
  owner_id: string
  /** Null for a database. */
  deployment_id: string | null
}

/** Stores what a host tells of the replicas on its machines. Ignores replicas that are not to run there. */
export async function recordReplicas(
  hostId: string,
  { samples, ended, healths, databases }: ReplicaReport,
): Promise<void> {
  const machines = new Set(
    [...samples, ...ended, ...healths, ...databases].map(({ machine_id }) => machine_id),
  )
  const tenants = await ownersOn(hostId, [...machines])
  const wanted = await wantedOn([...tenants.keys()])
  const find = (serviceId: string, machineId: string): Wanted | null => {
    const replica = wanted.get(serviceId)
    return replica?.machine_id === machineId ? replica : null
  }
  await storeSamples(samples, ({ id, machine_id }) => {
    const replica = find(id, machine_id)
    return replica && { tenant_id: replica.tenant_id, instance_id: replica.owner_id, replica: id }
  })
  await storeDatabaseSamples(databases, ({ id, machine_id }) => {
    const database = find(id, machine_id)
    return database?.deployment_id === null ? database.tenant_id : null
  })
  await noteContainers(tenants, { healths, ended })
  for (const one of ended) {
    const replica = find(one.service_id, one.machine_id)
    if (replica) await noteEnd(replica, one)
  }
}

/** Notes how the containers of services are. `tenants`: of the machines that are the host's. */
async function noteContainers(
  tenants: ReadonlyMap<string, string>,
  { healths, ended }: Pick<ReplicaReport, 'healths' | 'ended'>,
): Promise<void> {
  const now = new Date()
  const notes = [
    ...healths.map(({ machine_id, service_id, health }) => ({
      machine_id,
      service_id,
      set: { 'containers.$.seen_at': now, 'containers.$.health': health },
    })),
    ...ended.map(({ machine_id, service_id, exit_code, ended_at }) => ({
      machine_id,
      service_id,
      set: { 'containers.$.ended': { exit_code, at: new Date(ended_at) } },
    })),
  ]
  const ids = notes.map(({ service_id }) => service_id)
  const known = await Service.distinct('containers.service_id', {
    'containers.service_id': { $in: ids },
  }).setOptions(everyTenant)
  for (const { machine_id, service_id, set } of notes) {
    const tenant_id = tenants.get(machine_id)
    if (tenant_id === undefined || !known.includes(service_id)) continue
    await Service.updateOne(
      { tenant_id, 'containers.service_id': service_id },
      { $set: set },
      { timestamps: false },
    )
  }
}

/** The replicas that are to run on these machines, by their services. */
async function wantedOn(machineIds: string[]): Promise<Map<string, Wanted>> {
  const servers = await DeployServer.find({ 'nodes.machine_id': { $in: machineIds } }, { _id: 1, nodes: 1 })
    .setOptions(everyTenant)
    .lean()
  const [replicas, databases] = await Promise.all([wantedReplicas(servers), wantedDatabases(servers)])
  return new Map([...replicas, ...databases])
}

type Server = Pick<DeployServerDocument, '_id' | 'nodes'>

async function wantedDatabases(servers: Server[]): Promise<[string, Wanted][]> {
  const databases = await Database.find({
    deploy_server_id: { $in: servers.map(({ _id }) => _id) },
    runs: true,
  })
    .setOptions(everyTenant)
    .lean()
  return databases.flatMap(({ _id, tenant_id, deploy_server_id, volume_node }): [string, Wanted][] => {
    const nodes = servers.find((server) => server._id === deploy_server_id)?.nodes ?? []
    const { name: node, machine_id } = nodes.find(({ name }) => name === volume_node) ?? {}
    if (!node || !machine_id) return []
    return [[_id, { tenant_id, owner_id: _id, deployment_id: null, node, machine_id }]]
  })
}

async function wantedReplicas(servers: Server[]): Promise<[string, Wanted][]> {
  const applications = await Application.find(
    { deploy_server_id: { $in: servers.map(({ _id }) => _id) }, status: 'active' },
    { wanted_ids: 1 },
  )
    .setOptions(everyTenant)
    .lean()
  const deployments = await findDeployments(applications.flatMap(({ wanted_ids }) => wanted_ids))
  return deployments.flatMap(({ _id: deployment_id, tenant_id, app_id, places }) =>
    places.map(({ service_id, node, machine_id }): [string, Wanted] => [
      service_id,
      { tenant_id, owner_id: app_id, deployment_id, node, machine_id },
    ]),
  )
}

async function noteEnd(
  { tenant_id, owner_id, deployment_id, node }: Wanted,
  { engine_id, exit_code, ended_at }: ReplicaReport['ended'][number],
): Promise<void> {
  // Not every engine says whether its kernel killed for memory.
  const why =
    exit_code === 137 ? 'killed, probably for using more memory than it may' : `exit code ${exit_code}`
  const event = {
    tenant_id,
    resource_id: owner_id,
    time: new Date(ended_at),
    ...(deployment_id === null
      ? {
          kind: 'database_ended',
          message: `The database on ${node} ended (${why}) and starts again`,
          data: { worker: node, exit_code },
        }
      : {
          kind: 'replica_ended',
          message: `A replica on ${node} ended (${why}) and starts again`,
          data: { worker: node, deployment_id, exit_code },
        }),
  }
  await noteOnce(engine_id, event)
}
