import Docker from 'dockerode'
import { readSettings } from '../../config.ts'
import type { ContainerEngine, ContainerSpec } from '../../drivers/containers.ts'
import { makeDockerEngine } from '../../drivers/docker/engine.ts'
import { logFolder, makeDockerLogFiles } from '../../drivers/docker/log-files.ts'
import { makeHostPorts } from '../../drivers/system/host-ports.ts'
import type { LogFiles } from '../../drivers/log-files.ts'
import { newId } from '../../lib/ids.ts'

// The real engine, through the driver and directly.

export const { KEELSON_DOCKER_HOST: dockerHost } = readSettings('host')
/** The engine takes any of these. The ports above, up to 22,999, are for the tests that choose one. */
export const testPorts = [22_000, 22_899] as const
export const testHost = newId()

/** `hostId` is the host of the containers; by default one of this test run's own on this machine's engine. */
export const makeEngine = (
  range: readonly [number, number] = testPorts,
  hostId: string = testHost,
  at: string = dockerHost,
  { machines = false } = {},
): ContainerEngine =>
  makeDockerEngine({
    hostId,
    dockerHost: at,
    ports: makeHostPorts({ address: '127.0.0.1', range }),
    machines,
  })
export const engine: ContainerEngine = makeEngine()
/** Of a host whose operator allows machines that are containers. */
export const machineEngine: ContainerEngine = makeEngine(testPorts, testHost, dockerHost, { machines: true })
export const files: LogFiles = makeDockerLogFiles({
  hostId: testHost,
  dockerHost,
  folder: await logFolder(dockerHost),
})

const url = new URL(dockerHost)
export const docker =
  url.protocol === 'unix:'
    ? new Docker({ socketPath: url.pathname, host: undefined })
    : new Docker({ host: url.hostname, port: url.port, protocol: 'http' })

/** The tenant of this test run: its label finds all containers that the run made. */
export const testTenant = newId()

/** The spec of a small container with a new id; by default it sleeps. */
export const containerSpec = (over: Partial<ContainerSpec> = {}): ContainerSpec => ({
  id: newId(),
  tenant_id: testTenant,
  name: 'test',
  image: 'busybox',
  image_digest: null,
  command: ['sleep', '600'],
  entrypoint: [],
  cpu_cores: 0.2,
  memory_mib: 32,
  restart_policy: 'always',
  ports: [],
  log_cap_mib: 10,
  health_check: null,
  ...over,
})

/** The spec of a container with a shell command. */
export const shell = (script: string, over: Partial<ContainerSpec> = {}): ContainerSpec =>
  containerSpec({ command: ['sh', '-c', script], ...over })

/** The engine's own containers for this id, found by label, not in our database. */
export const onEngine = (id: string) =>
  docker.listContainers({ all: true, filters: { label: [`keelson.resource=${id}`] } })

export async function removeTestContainers(tenant = testTenant): Promise<void> {
  const left = await docker.listContainers({
    all: true,
    filters: { label: [`keelson.tenant=${tenant}`] },
  })
  await Promise.all(left.map(({ Id }) => docker.getContainer(Id).remove({ force: true, v: true })))
}
