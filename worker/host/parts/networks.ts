import { mkdir, readFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { makeNetworks, makeNetworksOnHost, type Networks } from '../../../activities/host/networks.ts'
import type { Settings } from '../../../config.ts'
import type { FoundInstance, InstanceEngine } from '../../../drivers/instances.ts'
import { makeLinuxNetworks } from '../../../drivers/linux/networks.ts'
import type { HostNetworks, ObservedPath } from '../../../lib/host-protocol.ts'
import type { Logger } from '../../../lib/log.ts'
import type { HostPart } from '../part.ts'

/** The address by which other hosts reach this one; null for a loopback address. */
export function underlayAddress(settings: Settings<'host'>): string | null {
  const { KEELSON_UNDERLAY_ADDRESS: own, KEELSON_HOST_ADDRESS: address } = settings
  if (own) return own
  return isIP(address) === 4 && !address.startsWith('127.') && address !== '0.0.0.0' ? address : null
}

interface Parts {
  hostId: string
  engine: Pick<InstanceEngine, 'find'>
  wanted: () => Promise<HostNetworks>
  log: Logger
}

/** Opens the network driver of this host. */
export async function openNetworks(
  settings: Settings<'host'>,
  { hostId, ...parts }: Parts,
): Promise<Networks> {
  const driver = makeLinuxNetworks({
    host: hostId,
    stateFolder: await networkFolder(settings.KEELSON_NETWORK_STATE, hostId),
    ...(settings.KEELSON_HOST_NAMESPACE ? { hostNamespace: settings.KEELSON_HOST_NAMESPACE } : {}),
    underlayAddress: underlayAddress(settings),
    resolvers: await resolversOf(settings),
    refused: settings.KEELSON_NETWORK_REFUSED,
    vxlanPort: settings.KEELSON_VXLAN_PORT,
    mtu: settings.KEELSON_NETWORK_MTU,
  })
  return makeNetworks({ driver, ...parts })
}

/** Makes the host's own folder. If that is not permitted, the first attempt to make a VPC reports it. */
async function networkFolder(above: string, hostId: string): Promise<string> {
  const folder = join(above, hostId)
  await mkdir(folder, { recursive: true, mode: 0o755 }).catch(() => {})
  return folder
}

/** The resolvers that members of subnets with `nat`, and containers without NICs, may ask. */
export async function resolversOf(settings: Settings<'host'>): Promise<string[]> {
  const { KEELSON_NETWORK_RESOLVERS: set } = settings
  return set.length ? set : (await Promise.all(resolverFiles.map(resolversIn))).flat()
}

/** The second has the machine's resolvers where the first has that of systemd, at a loopback address. */
const resolverFiles = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf']

async function resolversIn(file: string): Promise<string[]> {
  const text = await readFile(file, 'utf8').catch(() => '')
  return [...text.matchAll(/^nameserver\s+(\S+)/gm)].flatMap(([, address]) => address ?? [])
}

// A dead resolver or a deleted link is not reported by anything, so check. A check takes 55 ms per subnet.
const mendEveryMs = 30_000
// Each path costs a connection.
const lookEveryMs = 10_000

type PartOf = Parameters<typeof makeNetworksOnHost>[0] & {
  /** The instances on this host. */
  instances: () => FoundInstance[]
  log: Logger
}

export function networksPart({ networks, machines, instances, log }: PartOf): HostPart {
  let paths: ObservedPath[] = []
  return {
    name: 'networks',
    kinds: ['path'],
    activities: makeNetworksOnHost({ networks, machines }),
    observe: async () => paths,
    observed: () =>
      void networks
        .look(instances())
        .catch((err: unknown) => log.warn({ err }, 'NICs were not looked at; trying again')),
    version: networks.version,
    applyWanted: () => networks.apply(),
    keep: (signal) =>
      Promise.all([
        keepMending(networks, log, signal),
        keepLooking(networks, (found) => (paths = found), log, signal),
      ]),
  }
}

/** Looks whether the targets of paths take connections, periodically, until aborted. */
async function keepLooking(
  networks: Networks,
  take: (found: ObservedPath[]) => void,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    try {
      const found = await networks.lookAlongPaths()
      take(
        found.map(({ id, reaches }) => ({ kind: 'path', id, state: reaches ? 'reachable' : 'unreachable' })),
      )
    } catch (err) {
      log.warn({ err }, 'paths were not looked at')
    }
    await delay(lookEveryMs, undefined, { signal }).catch(() => undefined)
  }
}

/** Checks and repairs all networks at the start and then periodically, until aborted. */
async function keepMending(networks: Networks, log: Logger, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await networks
      .apply({ mend: true })
      .catch((err: unknown) => log.warn({ err }, 'networks were not looked at'))
    await delay(mendEveryMs, undefined, { signal }).catch(() => undefined)
  }
}
