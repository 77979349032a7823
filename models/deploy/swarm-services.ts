import { type DeployServices, ownerLabel } from '../../lib/deploy-protocol.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Application, openEnvs } from './applications.ts'
import { credentialsOf, type DatabaseDocument, runningDatabases } from './databases.ts'
import { tlsKeyOf } from './database-tls.ts'
import { findDeployments } from './deployments.ts'
import type { DeployServerDocument } from './deploy-servers.ts'
import type { DatabaseEngine } from './engines/engine.ts'
import { engineOf } from './engines/index.ts'
import { builtImage, platformLogin } from './registries.ts'
import { containersOfServices } from './service-specs.ts'
import { volumeOf } from './storages.ts'

type Service = DeployServices['services'][number]

/** The services that are to run in a deploy server's Swarm, with their environment variables. */
export const wantedServices = async (server: DeployServerDocument): Promise<Service[]> =>
  (
    await Promise.all([
      servicesOfApplications(server),
      servicesOfDatabases(server),
      containersOfServices(server),
    ])
  ).flat()

async function servicesOfDatabases({ _id, nodes }: DeployServerDocument): Promise<Service[]> {
  const services = (await runningDatabases(_id)).map(async (database) => {
    const machine_id = nodes.find(({ name }) => name === database.volume_node)?.machine_id
    return machine_id ? [await serviceOfDatabase(database, machine_id)].flatMap((one) => one ?? []) : []
  })
  return (await Promise.all(services)).flat()
}

/** The platform asks an engine whether it is healthy: a check of Swarm's own would end one that is busy or recovers. */
async function serviceOfDatabase(database: DatabaseDocument, machine_id: string): Promise<Service | null> {
  const { _id, name, type, applied, machine_port, isolated } = database
  if (!applied || machine_port === null) return null
  const { image, cpu_cores, memory_mib, configuration, mounts, starts } = applied
  const credentials = await credentialsOf(database)
  const engine = engineOf(type)
  return {
    id: _id,
    name,
    labels: { [ownerLabel('database')]: _id },
    machine_id,
    image,
    registry_login: null,
    ...(await withTls(database, engine, {
      command: engine.command({ memory_mib, configuration, credentials }),
      env: engine.env(credentials),
    })),
    cpu_cores,
    memory_mib,
    port: isolated ? null : { container_port: engine.port, machine_port },
    volumes: mounts.map(({ id, mount_path }) => ({ name: volumeOf(id), mount_path })),
    health_check: null,
    stop_grace_sec: engine.stop_grace_sec,
    restarts: starts,
  }
}

/** In the container. */
const tlsFile = '/tmp/server-tls.pem'

/** An engine that ends TLS itself is started with its key in a file that its user alone can read. */
async function withTls(
  database: DatabaseDocument,
  { outside: { tls } }: DatabaseEngine,
  { command, env }: Pick<Service, 'command' | 'env'>,
): Promise<Pick<Service, 'command' | 'env'>> {
  if (tls === 'load_balancer') return { command, env }
  const script = `umask 077; rm -f ${tlsFile}; printf %s "$SERVER_TLS_PEM" >${tlsFile} || exit
[ "$(id -u)" != 0 ] || chown ${tls.user} ${tlsFile} || exit
unset SERVER_TLS_PEM; umask 022; exec docker-entrypoint.sh "$@"`
  return {
    command: ['/bin/sh', '-c', script, 'sh', ...command, ...tls.options(tlsFile)],
    env: { ...env, SERVER_TLS_PEM: `${await tlsKeyOf(database)}${database.tls_certificate}` },
  }
}

async function servicesOfApplications(server: DeployServerDocument): Promise<Service[]> {
  const { _id } = server
  const login = await platformLogin(server)
  const applications = await Application.find({ deploy_server_id: _id, status: 'active' })
    .setOptions(everyTenant)
    .lean()
  const byId = new Map(applications.map((application) => [application._id, application]))
  const deployments = await findDeployments(applications.flatMap(({ wanted_ids }) => wanted_ids))
  const services = deployments.map(async (deployment) => {
    const env = await openEnvs(deployment)
    const { image, tag, port, command, cpu_cores, memory_mib, stop_grace_sec, app_id } = deployment
    const { built, pulls_from } = deployment
    return deployment.places.map(
      ({ service_id, machine_id, machine_port }): Service => ({
        id: service_id,
        name: byId.get(app_id)?.name ?? 'application',
        labels: { [ownerLabel('application')]: app_id, 'keelson.deployment': deployment._id },
        machine_id,
        image: built ? builtImage(image, built.digest, pulls_from) : `${image}:${tag}`,
        registry_login: built ? login : null,
        command,
        env: port === null ? env : { PORT: String(port), ...env },
        cpu_cores,
        memory_mib,
        port: port === null || machine_port === null ? null : { container_port: port, machine_port },
        volumes: deployment.mounts.map(({ id, mount_path }) => ({ name: volumeOf(id), mount_path })),
        health_check: null,
        stop_grace_sec,
        restarts: 0,
      }),
    )
  })
  return (await Promise.all(services)).flat()
}
