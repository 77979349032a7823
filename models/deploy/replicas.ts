import type { PlaceOnHost } from '../../lib/deploy-protocol.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Application, type ApplicationDocument } from './applications.ts'
import { Deployment, type DeploymentDocument, findDeployments, type Place } from './deployments.ts'
import { type DatabaseDocument } from './databases.ts'
import { DeployServer } from './deploy-servers.ts'
import { hostsOfMachines } from './machine-places.ts'

// Where the replicas of applications run.

/** Leaves out the places of machines that are on no host. */
export async function onHosts(
  places: Pick<Place, 'machine_id' | 'service_id' | 'node'>[],
): Promise<PlaceOnHost[]> {
  const hosts = await hostsOfMachines([...new Set(places.map(({ machine_id }) => machine_id))])
  return places.flatMap(({ machine_id, service_id, node }) => {
    const host_id = hosts.get(machine_id)
    return host_id ? [{ host_id, machine_id, service_id, node }] : []
  })
}

/** The replicas that are to run now, with the deployments that they belong to. */
export async function replicasOfApplication({
  wanted_ids,
}: ApplicationDocument): Promise<(PlaceOnHost & { deployment_id: string })[]> {
  const deployments = await findDeployments(wanted_ids)
  const found = deployments.map(async ({ _id, places }) =>
    (await onHosts(places)).map((place) => ({ ...place, deployment_id: _id })),
  )
  return (await Promise.all(found)).flat()
}

/** Where a database runs. Null if it has no worker, or that is on no host. */
export async function placeOfDatabase({
  _id: service_id,
  deploy_server_id,
  volume_node: node,
}: DatabaseDocument): Promise<PlaceOnHost | null> {
  if (node === null) return null
  const server = await DeployServer.findById(deploy_server_id).setOptions(everyTenant).lean()
  const machine_id = server?.nodes.find(({ name }) => name === node)?.machine_id
  if (!machine_id) return null
  return (await onHosts([{ machine_id, service_id, node }]))[0] ?? null
}

/** The applications that serve from a worker, with the deployments whose releases do. */
export async function servingOn(
  deploy_server_id: string,
  node: string,
): Promise<{ application: ApplicationDocument; deployment: DeploymentDocument }[]> {
  const serving = { deploy_server_id, status: 'active' as const, current_id: { $ne: null } }
  const applications = await Application.find(serving).setOptions(everyTenant).lean()
  const ids = applications.flatMap(({ current_id }) => current_id ?? [])
  const current = await Deployment.find({ _id: { $in: ids }, 'places.node': node })
    .setOptions(everyTenant)
    .lean()
  return current.flatMap((deployment) => {
    const application = applications.find(({ current_id }) => current_id === deployment._id)
    return application ? [{ application, deployment }] : []
  })
}

/** Whether an application with a replica on a worker, of its current release or the next one, is being deployed. */
export async function areDeployedOn(deploy_server_id: string, node: string): Promise<boolean> {
  const its = { deploy_server_id, status: 'active' as const, wanted_ids: { $ne: [] } }
  const applications = await Application.find(its, { wanted_ids: 1 }).setOptions(everyTenant).lean()
  const here = await Deployment.distinct('app_id', {
    _id: { $in: applications.flatMap(({ wanted_ids }) => wanted_ids) },
    'places.node': node,
  }).setOptions(everyTenant)
  const open = { app_id: { $in: here }, operation_id: { $ne: null } }
  return (await Deployment.exists(open).setOptions(everyTenant)) !== null
}
