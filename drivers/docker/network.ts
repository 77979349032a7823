import { createHash } from 'node:crypto'
import Docker from 'dockerode'
import { overlap, parseCidr, toAddress } from '../../lib/ipv4.ts'
import { EngineRefused } from '../errors.ts'
import { connection } from './connection.ts'
import { asking, unless, wordsOf } from './errors.ts'
import { labels } from './spec.ts'

// The bridge of containers without NICs. Each host has one that only the platform's containers are on: the engine's
// default bridge, where the engine is the platform's own, else a network that the host makes.

export interface ContainerNetwork {
  /** The bridge's link, in the engine's network namespace. */
  bridge: string
  /** The network that a new container joins; null for the engine's default. Makes a missing one again. */
  mode: () => Promise<string | null>
}

interface NetworkSettings {
  hostId: string
  dockerHost: string
  /** The bridge of the engine's default network, if only the platform's containers are on it. */
  defaultBridge: string | null
  /** Where a new network takes its addresses, in CIDR notation. */
  pool: string
  /** Networks that the host reaches already, in CIDR notation. */
  taken: () => Promise<string[]>
}

const defaultNetwork = 'bridge'
const bridgeOption = 'com.docker.network.bridge.name'
/** A bridge has 1,024 ports at most. */
const prefix = 22

/**
 * Finds or makes the network of a host's containers. Throws EngineRefused if the engine's default bridge has another
 * name.
 */
export async function openContainerNetwork(settings: NetworkSettings): Promise<ContainerNetwork> {
  const docker = new Docker(connection(settings.dockerHost))
  if (settings.defaultBridge) {
    const its = await asking(() => docker.getNetwork(defaultNetwork).inspect())
    if (its.Options?.[bridgeOption] !== settings.defaultBridge)
      throw new EngineRefused(`${settings.defaultBridge} is not the bridge of the engine’s default network`)
    return { bridge: settings.defaultBridge, mode: async () => null }
  }
  const hash = createHash('sha256').update(settings.hostId).digest('hex').slice(0, 10)
  const network = { name: `keelson-${hash}`, bridge: `kc-${hash}` }
  const present = async (): Promise<string> => {
    const there = await unless([404], docker.getNetwork(network.name).inspect())
    if (!there) await make(docker, settings, network)
    return network.name
  }
  await asking(present)
  await asking(() => moveOver(docker, settings.hostId, network.name))
  return { bridge: network.bridge, mode: () => asking(present) }
}

/** Two calls at once make one network: the engine refuses a second bridge of that name. */
async function make(
  docker: Docker,
  { hostId, pool, taken }: NetworkSettings,
  { name, bridge }: { name: string; bridge: string },
): Promise<void> {
  const used = await taken()
  for (const subnet of freeSubnets(pool, hostId, used)) {
    try {
      await docker.createNetwork({
        Name: name,
        CheckDuplicate: true,
        Driver: 'bridge',
        Labels: { [labels.host]: hostId },
        Options: { [bridgeOption]: bridge, 'com.docker.network.bridge.enable_icc': 'false' },
        IPAM: { Driver: 'default', Config: [{ Subnet: subnet }] },
      })
      return
    } catch (error) {
      if (await unless([404], docker.getNetwork(name).inspect())) return
      // Another network of the engine's, which is not up, has these addresses.
      if (!/overlaps/i.test(wordsOf(error))) throw error
    }
  }
  throw new EngineRefused(`No network is free in ${pool} for the host’s containers`)
}

/** Begins at a place of the host's own, so that hosts of one network rarely have the same addresses. */
export function* freeSubnets(pool: string, hostId: string, used: string[]): Generator<string> {
  const all = parseCidr(pool)
  if (!all) throw new EngineRefused(`The pool of containers’ addresses is not valid: ${pool}`)
  const size = 2 ** (32 - prefix)
  const count = Math.floor((all.last - all.first + 1) / size)
  // A route that covers the whole pool is a default route, not a use of the pool.
  const others = used
    .flatMap((text) => parseCidr(text) ?? [])
    .filter((range) => range.last - range.first < all.last - all.first)
  const start = createHash('sha256').update(hostId).digest().readUInt32BE()
  for (let step = 0; step < count; step++) {
    const first = all.first + ((start + step) % count) * size
    const range = { first, last: first + size - 1, prefix }
    if (!others.some((other) => overlap(range, other))) yield `${toAddress(first)}/${prefix}`
  }
}

/**
 * Moves the host's containers from the default network, where they are if `defaultBridge` was set when they started: no fence
 * is around it now. They keep running, with their published ports.
 */
async function moveOver(docker: Docker, hostId: string, name: string): Promise<void> {
  const label = [`${labels.host}=${hostId}`]
  const unfenced = await docker.listContainers({ all: true, filters: { label, network: [defaultNetwork] } })
  for (const { Id: Container } of unfenced) {
    await unless([403], docker.getNetwork(name).connect({ Container })) // 403: it is on both
    await unless([404], docker.getNetwork(defaultNetwork).disconnect({ Container, Force: true }))
  }
}

/** Removes the network that a host has made, once no container is on it. Succeeds if there is none. */
export async function removeContainerNetworks(dockerHost: string, hostId: string): Promise<void> {
  const docker = new Docker(connection(dockerHost))
  const made = await docker.listNetworks({ filters: { label: [`${labels.host}=${hostId}`] } })
  for (const { Id } of made) await unless([404], docker.getNetwork(Id).remove())
}
