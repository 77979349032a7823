import type { Client, DeployServerBody } from './client.ts'
import { innerEngine } from './machines-inside.ts'

/**
 * What of services, or of one, is on a deploy server's machines: containers and volumes of the first worker, networks and files
 * of the Swarm.
 */
export async function leftOfServices(
  client: Client,
  server: DeployServerBody,
  service?: string,
): Promise<{ containers: number; volumes: number; networks: number; files: number }> {
  const worker = await innerEngine(client, server.workers[0]?.machine_id ?? '')
  const swarm = await innerEngine(client, server.control_plane?.machine_id ?? '')
  const filters = { label: [service ? `keelson.composed=${service}` : 'keelson.composed'] }
  const containers = await worker.listContainers({ all: false, filters })
  const { Volumes } = await worker.listVolumes({ filters })
  return {
    containers: containers.length,
    volumes: Volumes.length,
    networks: (await swarm.listNetworks({ filters })).length,
    files: (await swarm.listConfigs({ filters })).length,
  }
}
