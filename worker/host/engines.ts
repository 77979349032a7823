import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Settings } from '../../config.ts'
import { makeDockerEngine } from '../../drivers/docker/engine.ts'
import type { MayAsk } from '../../drivers/containers.ts'
import { type HostImages, makeHostImages } from '../../drivers/docker/host-images.ts'
import { openCrashLoops } from '../../drivers/docker/crash-loops.ts'
import { openHostLayers } from '../../drivers/docker/host-layers.ts'
import { hasLayerQuotas } from '../../drivers/docker/layer-quota.ts'
import { ioLimits } from './io-limits.ts'
import { logFolder, makeDockerLogFiles } from '../../drivers/docker/log-files.ts'
import { type InstanceEngine, joinEngines, joinLogFiles } from '../../drivers/instances.ts'
import type { LoadBalancerEngine } from '../../drivers/load-balancers.ts'
import { makeQcow2Disks } from '../../drivers/qcow2/disks.ts'
import { missingForDisks } from '../../drivers/system/equipment.ts'
import { makeHostPorts } from '../../drivers/system/host-ports.ts'
import { readLogFiles } from '../../drivers/system/log-reader.ts'
import { listenAddress } from '../../lib/addresses.ts'
import type { Logger } from '../../lib/log.ts'
import { metrics } from '../../lib/metrics.ts'
import { parsePorts, platformPorts, type PublishablePorts } from '../../lib/port-ranges.ts'
import { makeRegistryGuard } from '../../lib/registry-guard.ts'
import type { InternalApi } from './internal-api.ts'
import { makeLogShipper } from './log-shipper.ts'
import { openLoadBalancers } from './parts/load-balancers.ts'
import { type Machines, openMachines } from './parts/machines.ts'

interface With {
  hostId: string
  /** `logFolder` of the Docker Engine. */
  folder: string | null
  api: Pick<InternalApi, 'logPiece'>
  /** The network of containers without NICs. */
  network: () => Promise<string | null>
  serveOn: ServeOn
  log: Logger
}

/** Where other hosts fetch disks and machines. */
interface ServeOn {
  address: string
  ports: [from: number, to: number]
}

const portOf = ({ port, protocol }: URL): string => port || (protocol === 'https:' ? '443' : '80')

/** The ports that this host publishes. Its own programs' are reserved, whatever they are set to. */
export function publishablePorts(settings: Settings<'host'>): PublishablePorts {
  const own = [
    settings.KEELSON_HOST_PORT,
    settings.KEELSON_METRICS_PORT,
    settings.KEELSON_VXLAN_PORT,
    settings.KEELSON_TUNNEL_PORT,
    settings.KEELSON_HOST_DISK_PORTS,
    portOf(new URL(settings.KEELSON_API_URL)),
    portOf(new URL(settings.KEELSON_GATEWAY_URL)),
    ...settings.KEELSON_RESERVED_PORTS,
  ].map((text) => parsePorts(String(text)))
  const reserved = [...platformPorts, ...own].filter(([from, to]) => from >= 1 && to >= from)
  return { range: parsePorts(settings.KEELSON_HOST_PORT_RANGE), reserved }
}

/** The address of the data plane, and of disks and machines served to other hosts. */
export const planeAddress = (settings: Settings<'host'>): string =>
  settings.KEELSON_HOST_PLANE_ADDRESS ?? settings.KEELSON_HOST_ADDRESS

export const serveOn = (settings: Settings<'host'>): ServeOn => ({
  address: planeAddress(settings),
  ports: parsePorts(settings.KEELSON_HOST_DISK_PORTS),
})

const gibibyte = 1024 ** 3

/** Opens this host's disks. `roomGib` is the space for disks in GiB. */
export async function openDisks(settings: Settings<'host'>, log: Logger) {
  const lacking = await missingForDisks()
  if (lacking.length) log.warn({ lacking }, 'no disks on this host: see docs/operators.md')
  const disks = makeQcow2Disks({
    folder: settings.KEELSON_HOST_DISKS,
    run: settings.KEELSON_HOST_DISKS_RUN,
    machines: {
      helper: join(settings.KEELSON_HOST_GUEST, 'helper'),
      io: await ioLimits(settings, settings.KEELSON_HOST_DISKS),
    },
    serveOn: serveOn(settings),
  })
  /** The space for disks: what is free and what disks already use. */
  async function roomGib(): Promise<number> {
    if (lacking.length) return 0
    const { free_bytes, used_bytes } = await disks.space()
    return settings.KEELSON_HOST_DISK_GIB ?? Math.floor((free_bytes + used_bytes) / gibibyte)
  }
  return { disks, roomGib }
}

/** Opens the engines of this host's instances and load balancers, and the archiving of their output. */
export async function openEngines(
  settings: Settings<'host'>,
  { hostId, folder, api, network, log, ...of }: With,
) {
  const dockerHost = settings.KEELSON_DOCKER_HOST
  const backlogMib = settings.KEELSON_LOG_BACKLOG_MIB
  const archives = folder !== null && backlogMib > 0
  if (!archives) log.warn('output beyond containers’ caps is not archived: see docs/logs.md')
  let machines: Machines | null = null
  let balancers: LoadBalancerEngine | null = null
  const files = joinLogFiles(makeDockerLogFiles({ hostId, dockerHost, folder }), () =>
    [machines, balancers].flatMap((engine) => engine?.files ?? []),
  )
  const logs = makeLogShipper({
    files,
    send: api.logPiece,
    onShipped(bytes) {
      metrics.logPieces.inc()
      metrics.logBytes.inc(bytes)
    },
    log,
  })
  const ports = makeHostPorts({
    address: listenAddress(settings.KEELSON_HOST_ADDRESS),
    ...publishablePorts(settings),
  })
  const images = openImages(settings, makeRegistryGuard({ private: settings.KEELSON_IMAGES_PRIVATE }))
  const io = await ioLimits(settings)
  const layers = await openHostLayers({
    hostId,
    dockerHost,
    folder: join(settings.KEELSON_HOST_STATE, 'layers'),
    bytesPerSec: io?.bytes ?? null,
  })
  const loops = await openCrashLoops(dockerHost, join(settings.KEELSON_HOST_STATE, 'loops'))
  const containers = makeDockerEngine({
    hostId,
    dockerHost,
    ports,
    images,
    layers,
    loops,
    ...(archives ? { logBacklogMib: backlogMib, beforeRemoval: logs.shipAll } : {}),
    pauseImage: settings.KEELSON_PAUSE_IMAGE,
    network,
    mostOpenFiles: await mostOpenFiles(),
    io,
    quotas: await hasLayerQuotas(dockerHost),
    machines: settings.KEELSON_HOST_CONTAINER_MACHINES === 'true',
  })
  const archiving = archives ? { backlogMib, beforeRemoval: logs.shipAll } : null
  machines = await openMachines(settings, {
    hostId,
    serveOn: of.serveOn,
    ports,
    pulls: images,
    logs: archiving,
    log,
  })
  balancers = await openLoadBalancers(settings, { hostId, ports, logs: archiving, log })
  const engine = joinEngines(containers, machines)
  return { containers, machines, balancers, images, layers, loops, engine, files, logs, archives }
}

/** The images that this host pulls. Its records of them outlive its program. */
const openImages = (settings: Settings<'host'>, mayAsk: MayAsk): HostImages =>
  makeHostImages({
    mayAsk,
    dockerHost: settings.KEELSON_DOCKER_HOST,
    folder: join(settings.KEELSON_HOST_STATE, 'images'),
    mostBytes: settings.KEELSON_IMAGE_GIB * gibibyte,
    freeBytes: settings.KEELSON_IMAGES_FREE_GIB * gibibyte,
    unusedMs: settings.KEELSON_IMAGES_UNUSED_DAYS * 86_400_000,
  })

/** Of this process: the engine's is rarely lower, and it fails starts that ask for more. */
async function mostOpenFiles(): Promise<number> {
  const limits = await readFile('/proc/self/limits', 'utf8')
  return Number(/^Max open files +\d+ +(\d+)/m.exec(limits)?.[1] ?? 1024)
}

export const findLogFolder = (settings: Settings<'host'>): Promise<string | null> =>
  logFolder(settings.KEELSON_DOCKER_HOST)

/** The engine of a host's instances, which also reads the access logs of its load balancers. */
export function withAccessLogs(
  engine: InstanceEngine,
  balancers: Pick<LoadBalancerEngine, 'files'> | null,
): Omit<InstanceEngine, 'find'> & { find(id: string): Promise<object | null> } {
  const sourceOf = async (id: string) => (await balancers?.files.sourceOf(id)) ?? null
  return {
    ...engine,
    find: async (id) => (await sourceOf(id)) ?? engine.find(id),
    async *logs(id, options) {
      const source = await sourceOf(id)
      yield* source ? readLogFiles(source, options) : engine.logs(id, options)
    },
  }
}
