import type { PlaceOnHost } from '../../lib/deploy-protocol.ts'
import { DeployServer } from './deploy-servers.ts'
import { onHosts } from './replicas.ts'
import type { ServiceDocument } from './services.ts'

/** Where the containers of a service run that are to run. Empty while their worker is on no host. */
export async function placesOfService({
  tenant_id,
  deploy_server_id,
  volume_node,
  containers,
  wanted,
}: ServiceDocument): Promise<(PlaceOnHost & { name: string })[]> {
  const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
  const node = server?.nodes.find(({ name }) => name === volume_node)
  const { machine_id } = node ?? {}
  if (!node || !machine_id) return []
  const places = containers
    .filter(({ name }) => name in wanted)
    .map(({ name, service_id }) => ({ name, service_id, machine_id, node: node.name }))
  const names = new Map(places.map(({ name, service_id }) => [service_id, name]))
  const found = await onHosts(places)
  return found.map((place) => ({ ...place, name: names.get(place.service_id) ?? '' }))
}
