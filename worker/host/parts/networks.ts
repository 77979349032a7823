import { mkdir, readFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { makeNetworks, makeNetworksOnHost, type Networks } from '../../../activities/host/networks.ts'
import type { Settings } from '../../../config.ts'
import { EngineError, HostNotEquipped } from '../../../drivers/errors.ts'
import type { FoundInstance, InstanceEngine } from '../../../drivers/instances.ts'
import { Names } from '../../../drivers/linux/names.ts'
import { makeLinuxNetworks } from '../../../drivers/linux/networks.ts'
import type { TunnelKeys } from '../../../drivers/linux/tunnel-keys.ts'
import { missingForTunnel } from '../../../drivers/linux/tunnel.ts'
import type { HostNetworks, ObservedPath } from '../../../lib/network-protocol.ts'
import type { Logger } from '../../../lib/log.ts'
import { tunnelKeys } from '../enrolment.ts'
import type { HostPart } from '../part.ts'

/** The address by which other hosts reach this one; null for a loopback address. */
export function underlayAddress(settings: Settings<'host'>): string | null {
  const { KEELSON_UNDERLAY_ADDRESS: own, KEELSON_HOST_ADDRESS: address } = settings
  if (own) return own
  return isIP(address) === 4 && !address.startsWith('127.') && address !== '0.0.0.0' ? address : null
}

/** The keys of this host's tunnel; null without an underlay, and where the operator vouches for it. */
export const tunnelKeysOf = async (settings: Settings<'host'>): Promise<TunnelKeys | null> =>
  settings.KEELSON_NETWORK_TUNNEL === 'none' || underlayAddress(settings) === null
    ? null
    : tunnelKeys(settings.KEELSON_HOST_STATE)

interface Parts {
  hostId: string
  /** Of the tunnel. */
  keys: TunnelKeys | null
  engine: Pick<InstanceEngine, 'find'>
  wanted: () => Promise<HostNetworks>
  log: Logger
}

/** Opens the network driver of this host. */
export async function openNetworks(
  settings: Settings<'host'>,
  { hostId, keys, ...parts }: Parts,
): Promise<Networks> {
  const tunnel = keys && {
    keys,
    port: settings.KEELSON_TUNNEL_PORT,
    program: resolve(settings.KEELSON_HOST_WIREGUARD),
  }
  const driver = makeLinuxNetworks({
    host: hostId,
    stateFolder: await networkFolder(settings.KEELSON_NETWORK_STATE, hostId),
    ...(settings.KEELSON_HOST_NAMESPACE ? { hostNamespace: settings.KEELSON_HOST_NAMESPACE } : {}),
    underlayAddress: underlayAddress(settings),
    resolvers: await resolversOf(settings),
    refused: settings.KEELSON_NETWORK_REFUSED,
    vxlanPort: settings.KEELSON_VXLAN_PORT,
    tunnel,
    ...(settings.KEELSON_NETWORK_MTU ? { mtu: settings.KEELSON_NETWORK_MTU } : {}),
  })
  const lacking = tunnel ? await lackingForTunnel(settings, hostId, tunnel.program) : []
  if (lacking.length === 0) return makeNetworks({ driver, ...parts })
  parts.log.warn(
    { lacking },
    'no VPCs on this host: KEELSON_NETWORK_TUNNEL=wireguard needs what is lacking. Install it (script/bootstrap does), or set KEELSON_NETWORK_TUNNEL=none on all hosts if you vouch for the network between them',
  )
  const refusing = {
    ...driver,
    applySubnet: () => Promise.reject(new HostNotEquipped('its tunnel to other hosts')),
  }
  return makeNetworks({ driver: refusing, ...parts })
}

/** None on a host without root, which has no VPCs anyway and says so. */
const lackingForTunnel = (settings: Settings<'host'>, hostId: string, program: string): Promise<string[]> =>
  missingForTunnel(new Names(hostId), settings.KEELSON_HOST_NAMESPACE ?? null, program).catch(
    (error: unknown) => {
      if (error instanceof EngineError) return []
      throw error
    },
  )

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

// A dead resolver, a link set down or a deleted namespace is not reported by anything, so check. A check takes 55 ms per
// subnet, and at most a tenth of the time.
const mendEveryMs = 10_000
const pausePerMend = 9
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
    kinds: ['path', 'nic'],
    activities: makeNetworksOnHost({ networks, machines }),
    observe: async () => [...paths, ...networks.restored()],
    observed: () =>
      void networks
        .look(instances())
        .catch((err: unknown) => log.warn({ err }, 'NICs were not checked; trying again')),
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
      log.warn({ err }, 'paths were not checked')
    }
    await delay(lookEveryMs, undefined, { signal }).catch(() => undefined)
  }
}

/** Checks and repairs all networks at the start and then periodically, until aborted. */
async function keepMending(networks: Networks, log: Logger, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const begun = performance.now()
    await networks
      .apply({ mend: true })
      .catch((err: unknown) => log.warn({ err }, 'networks were not checked'))
    const pauseMs = Math.max(mendEveryMs, pausePerMend * (performance.now() - begun))
    await delay(pauseMs, undefined, { signal }).catch(() => undefined)
  }
}
