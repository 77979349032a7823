import type Docker from 'dockerode'
import type { ContainerInspectInfo } from 'dockerode'
import type { ContainerSpec, FoundContainer } from '../containers.ts'
import { statusOf, unless, until } from './errors.ts'
import { pullImage } from './images.ts'
import { engineName, isOurs, labels, toFound } from './spec.ts'
import { boundPorts, portOptions } from './port-bindings.ts'
import { type BoundPort, portKey, portsMatch } from '../system/host-ports.ts'

// A container with NICs joins the network namespace of a pause container, so the NICs outlive its restarts. The pause
// container also carries its published ports, resolver and host name.

const pauseName = (id: string): string => `${engineName(id)}-pause`

const isPause = (hostId: string, names: string[], carried: Record<string, string>): boolean =>
  carried[labels.kind] === 'pause' &&
  carried[labels.host] === hostId &&
  names.includes(`/${pauseName(carried[labels.resource] ?? '')}`)

/** Null if there is none, or if it is not this host's. */
export async function lookAtPause(
  docker: Docker,
  hostId: string,
  id: string,
  signal?: AbortSignal,
): Promise<ContainerInspectInfo | null> {
  const info = await unless([404], docker.getContainer(pauseName(id)).inspect(until(signal)))
  return info && isPause(hostId, [info.Name], info.Config.Labels) ? info : null
}

export interface PauseOrder {
  hostId: string
  spec: ContainerSpec
  operationId: string
  pauseImage: string
  network: () => Promise<string | null>
}

/**
 * A change of these values or of ports needs a new pause container, and so a new container, which loses its files. A
 * new search domain is not worth that, so it is left out.
 */
const factsOf = ({ name, network }: ContainerSpec): string => JSON.stringify([name, network?.dns_server])

/**
 * Returns the existing pause container if it matches, else makes a new one. `place` chooses the host ports of a new
 * one.
 */
export async function presentPause(
  docker: Docker,
  address: string,
  order: PauseOrder,
  place: () => Promise<BoundPort[]>,
): Promise<ContainerInspectInfo> {
  const { spec, hostId } = order
  const there = await lookAtPause(docker, hostId, spec.id)
  if (there) {
    const bound = boundPorts(there.HostConfig.PortBindings ?? {})
    if (there.Config.Labels[labels.spec] === factsOf(spec) && portsMatch(spec.ports, bound)) return there
    await removeAny(docker, there.Id)
  }
  await pullImage(docker, order.pauseImage, {})
  try {
    const ports = await place()
    // Only published ports need a network of the engine's.
    const network = ports.length ? await order.network() : 'none'
    await docker.createContainer(pauseOptions(order, address, ports, network))
  } catch (error) {
    if (statusOf(error) !== 409) throw error // 409: another call is making it
  }
  const made = await lookAtPause(docker, hostId, spec.id)
  if (!made) throw new Error('a pause container is not there once it is made')
  return made
}

function pauseOptions(
  order: PauseOrder,
  address: string,
  ports: BoundPort[],
  network: string | null,
): Docker.ContainerCreateOptions {
  const { spec, hostId, operationId } = order
  const { ExposedPorts, PortBindings } = portOptions(address, ports)
  return {
    name: pauseName(spec.id),
    Image: order.pauseImage,
    Entrypoint: ['sleep'],
    Cmd: ['2147483647'], // seconds: 68 years
    Hostname: spec.name,
    User: '65534:65534',
    StopSignal: 'SIGKILL',
    Labels: {
      [labels.resource]: spec.id,
      [labels.kind]: 'pause',
      [labels.tenant]: spec.tenant_id,
      [labels.operation]: operationId,
      [labels.host]: hostId,
      [labels.spec]: factsOf(spec),
      [labels.ports]: ports.map(portKey).join(','),
    },
    ExposedPorts,
    HostConfig: {
      ...(network ? { NetworkMode: network } : {}),
      PortBindings,
      Dns: spec.network ? [spec.network.dns_server] : [],
      DnsSearch: spec.network ? [spec.network.search_domain] : [],
      RestartPolicy: { Name: 'unless-stopped' },
      Memory: 16 * 1024 * 1024,
      PidsLimit: 8,
      ReadonlyRootfs: true,
      CapDrop: ['ALL'],
      SecurityOpt: ['no-new-privileges'],
      LogConfig: { Type: 'none', Config: {} },
    },
  }
}

/** The network mode that joins the pause container. */
export const joining = (id: string): string => `container:${pauseName(id)}`

export const isJoined = ({ HostConfig }: ContainerInspectInfo): boolean =>
  HostConfig.NetworkMode?.startsWith('container:') ?? false

/** Whether the container joins this pause container. Some engines store the id in place of the name. */
export const joins = (container: ContainerInspectInfo, pause: ContainerInspectInfo): boolean =>
  [joining(pause.Config.Labels[labels.resource] ?? ''), `container:${pause.Id}`].includes(
    container.HostConfig.NetworkMode ?? '',
  )

/** Whether a running container still has its network. It loses it when its pause container ends or restarts. */
export const hasNetwork = (container: ContainerInspectInfo, pause: ContainerInspectInfo | null): boolean =>
  !isJoined(container) ||
  (pause?.State.Running === true &&
    Date.parse(pause.State.StartedAt) <= Date.parse(container.State.StartedAt))

/**
 * Combines a container with its pause container, if any. A running container that lost its network is reported as
 * `created`, so that it is started again.
 */
export function toFoundWith(
  container: ContainerInspectInfo,
  pause: ContainerInspectInfo | null,
): FoundContainer {
  const found = toFound(container)
  if (!isJoined(container)) return found
  const ports = boundPorts(pause?.HostConfig.PortBindings ?? {})
  const lost = found.state === 'running' && !hasNetwork(container, pause)
  return {
    ...found,
    ports,
    ...(pause ? { network_since: pause.State.StartedAt } : {}),
    ...(lost ? { state: 'created' as const } : {}),
  }
}

/** A pause container without its container. Reported so that an orphan is found and removed. */
export const toFoundAlone = (pause: ContainerInspectInfo): FoundContainer => ({
  ...toFound(pause),
  state: 'created',
  pid: null,
  exit_code: null,
})

const idOf = ({ Config }: ContainerInspectInfo): string => Config.Labels[labels.resource] ?? ''

/** Pairs the containers of this host with their pause containers. */
export function pair(hostId: string, all: ContainerInspectInfo[]): FoundContainer[] {
  const isOne = ({ Name, Config }: ContainerInspectInfo): boolean => isPause(hostId, [Name], Config.Labels)
  const pauses = new Map(all.filter(isOne).map((pause) => [idOf(pause), pause]))
  const containers = all.filter(({ Name, Config }) => isOurs(hostId, [Name], Config.Labels))
  const withOne = new Set(containers.map(idOf))
  return [
    ...containers.map((container) => toFoundWith(container, pauses.get(idOf(container)) ?? null)),
    ...[...pauses].flatMap(([id, pause]) => (withOne.has(id) ? [] : [toFoundAlone(pause)])),
  ]
}

/** Stops the pause container and so removes its NICs: a stopped instance must not answer at its addresses. */
export async function stopPause(docker: Docker, hostId: string, id: string): Promise<void> {
  const pause = await lookAtPause(docker, hostId, id)
  if (pause?.State.Running) await unless([304, 404], docker.getContainer(pause.Id).stop({ t: 0 }))
}

/** Removes a container and its anonymous volumes, or waits until another call has removed it. */
export async function removeAny(docker: Docker, engineId: string): Promise<void> {
  const container = docker.getContainer(engineId)
  try {
    await unless([404], container.remove({ force: true, v: true }))
  } catch (error) {
    if (statusOf(error) !== 409) throw error
    await unless([404], container.wait({ condition: 'removed' }))
  }
}

/** Starts the pause container and returns the pid of its process. */
export async function startPause(docker: Docker, pause: ContainerInspectInfo): Promise<number> {
  const container = docker.getContainer(pause.Id)
  await unless([304], container.start())
  const { State } = await container.inspect()
  return State.Pid
}
