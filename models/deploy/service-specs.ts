import { type DeployServices, ownerLabel, type RegistryLogin } from '../../lib/deploy-protocol.ts'
import { everyTenant } from '../tenant-scope.ts'
import type { ComposePlan, PlannedContainer } from './compose/plan.ts'
import type { DeployServerDocument } from './deploy-servers.ts'
import { builtImage, platformLogin } from './registries.ts'
import { networkOfService, openRevision, Service, type ServiceDocument, volumeOfService } from './services.ts'
import { type StorageDocument, storagesOfService, volumeOf } from './storages.ts'

type Wanted = DeployServices['services'][number]

/** The containers of services that are to run in a deploy server's Swarm. */
export async function containersOfServices(server: DeployServerDocument): Promise<Wanted[]> {
  const { _id, nodes } = server
  const login = await platformLogin(server)
  const services = await Service.find({ deploy_server_id: _id }).setOptions(everyTenant).lean()
  const found = services.map(async (service): Promise<Wanted[]> => {
    const { tenant_id, volume_node, wanted, revision_sealed } = service
    const machine_id = nodes.find(({ name }) => name === volume_node)?.machine_id
    if (!machine_id || Object.keys(wanted).length === 0) return []
    const { plan } = await openRevision(tenant_id, revision_sealed)
    const storages = await storagesOfService(tenant_id, service._id)
    return plan.containers
      .filter(({ name }) => name in wanted)
      .map((one) => specOf(service, plan, one, { machine_id, storages, login }))
  })
  return (await Promise.all(found)).flat()
}

function specOf(
  service: ServiceDocument,
  plan: ComposePlan,
  planned: PlannedContainer,
  {
    machine_id,
    storages,
    login,
  }: { machine_id: string; storages: StorageDocument[]; login: RegistryLogin | null },
): Wanted {
  const { _id, containers, wanted } = service
  const { name, env, built, command, cpu_cores, memory_mib, stop_grace_sec, volumes } = planned
  const record = containers.find((one) => one.name === name)
  const attached = storages.filter(({ container }) => container === name)
  return {
    id: record?.service_id ?? '',
    name: `${service.name}-${name.replaceAll('.', '-')}`, // the Swarm takes no `.`
    labels: { [ownerLabel('service')]: _id, 'keelson.container': name },
    machine_id,
    image: built ? builtImage(planned.image, built.digest, record?.pulls_from) : planned.image,
    registry_login: built ? login : null,
    command: command ?? [],
    env,
    cpu_cores,
    memory_mib,
    port: null,
    volumes: [
      ...volumes.map(({ volume, mount_path }) => ({ name: volumeOfService(_id, volume), mount_path })),
      ...attached.map((one) => ({ name: volumeOf(one._id), mount_path: one.mount_path })),
    ],
    health_check: null,
    stop_grace_sec,
    restarts: wanted[name] ?? 0,
    composed: {
      entrypoint: planned.entrypoint,
      user: planned.user,
      working_dir: planned.working_dir,
      hostname: planned.hostname,
      networks: planned.networks.map((network) => ({
        name: networkOfService(_id, network.name),
        aliases: [name, ...planned.aliases, ...network.aliases],
        internal: plan.networks.find((one) => one.name === network.name)?.internal ?? false,
      })),
      ports: planned.ports.flatMap((port) => {
        const machine_port = record?.ports.find((one) => one.port === port)?.machine_port
        return machine_port === undefined ? [] : [{ container_port: port, machine_port }]
      }),
      read_only_paths: volumes.filter(({ read_only }) => read_only).map(({ mount_path }) => mount_path),
      tmpfs: planned.tmpfs,
      files: planned.files,
      health_check: planned.health_check,
      restart: planned.restart,
      stop_signal: planned.stop_signal,
      read_only: planned.read_only,
      tty: planned.tty,
      capabilities: planned.capabilities,
    },
  }
}
