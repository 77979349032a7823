import { NativeConnection, Worker } from '@temporalio/worker'
import { failures } from '../activities/failures.ts'
import { heartbeats } from '../activities/heartbeats.ts'
import { makeContainersOnHost } from '../activities/host/containers.ts'
import { makeHostedDisks } from '../activities/host/disk-mounts.ts'
import { makeDisksOnHost } from '../activities/host/disks.ts'
import { makeMachinesOnHost } from '../activities/host/machines.ts'
import { makeNetworksOnHost } from '../activities/host/networks.ts'
import { measured } from '../activities/measured.ts'
import { readSettings } from '../config.ts'
import { makeHostPorts } from '../drivers/system/host-ports.ts'
import { describeDocker, makeDockerEngine } from '../drivers/docker/engine.ts'
import { logFolder, makeDockerLogFiles } from '../drivers/docker/log-files.ts'
import { missingForDisks } from '../drivers/system/equipment.ts'
import { type FoundInstance, joinEngines, joinLogFiles } from '../drivers/instances.ts'
import { makeQcow2Disks } from '../drivers/qcow2/disks.ts'
import { listenAddress } from '../lib/addresses.ts'
import type { Capacity } from '../lib/host-protocol.ts'
import { makeLogger } from '../lib/log.ts'
import { gauge, metrics, serveMetrics } from '../lib/metrics.ts'
import { dataConverter, hostQueue } from '../lib/temporal.ts'
import { haveAlone } from './host/alone.ts'
import { serveDataPlane } from './host/data-plane.ts'
import { makeDiskKeeper } from './host/disks.ts'
import { enrolled } from './host/enrolment.ts'
import { enrol, InternalApiFault, makeInternalApi } from './host/internal-api.ts'
import { makeLogShipper } from './host/log-shipper.ts'
import { keepMachines, lookIntoMachines, type Machines, openMachines } from './host/machines.ts'
import { keepMending, openNetworks, underlayAddress } from './host/networks.ts'
import { makePlaneTokens } from './host/plane-tokens.ts'
import { keepReporting } from './host/reporter.ts'
import { keepSampling } from './host/sampler.ts'
import { makeBackoff, untilItWorks } from './retry.ts'
import { installTemporalRuntime } from './temporal-runtime.ts'

// One host: runs the activities of its queue on this machine's engines, reports what it observes, and serves
// its data plane. It knows no database; what it may do, it may by the key that it enrolled.

const settings = readSettings('host')
const log = makeLogger('host', settings.KEELSON_LOG_LEVEL)
installTemporalRuntime(log, settings)

const stopping = new AbortController()
const { signal } = stopping
for (const name of ['SIGTERM', 'SIGINT'] as const) process.once(name, () => stopping.abort())

const planeAddress = settings.KEELSON_HOST_PLANE_ADDRESS ?? settings.KEELSON_HOST_ADDRESS

const range = (text: string): [from: number, to: number] => {
  const [from = 0, to = 0] = text.split('-').map(Number)
  return [from, to]
}

const serveOn = { address: planeAddress, ports: range(settings.KEELSON_HOST_DISK_PORTS) }
const lacking = await missingForDisks()
if (lacking.length) log.warn({ lacking }, 'no disks on this host: see docs/operators.md')
const disks = makeQcow2Disks({
  folder: settings.KEELSON_HOST_DISKS,
  run: settings.KEELSON_HOST_DISKS_RUN,
  serveOn,
})

const gibibyte = 1024 ** 3

/** What the machine's other users leave to disks: what is free, and what the disks have taken of it already. */
async function diskRoom(): Promise<number> {
  if (lacking.length) return 0
  const { free_bytes, used_bytes } = await disks.space()
  return settings.KEELSON_HOST_DISK_GIB ?? Math.floor((free_bytes + used_bytes) / gibibyte)
}

async function about() {
  const { name, version, ...machine } = await describeDocker(settings.KEELSON_DOCKER_HOST)
  const capacity: Capacity = {
    cpu_cores: settings.KEELSON_HOST_CPU_CORES ?? machine.cpu_cores,
    // The platform and the system live in what is left.
    memory_mib: settings.KEELSON_HOST_MEMORY_MIB ?? Math.max(machine.memory_mib - 1024, 1),
    disk_gib: await diskRoom(),
  }
  return {
    data_plane_url: `http://${planeAddress}:${settings.KEELSON_HOST_PORT}`,
    address: settings.KEELSON_HOST_ADDRESS,
    capacity,
    engine: { name, version },
  }
}

await untilItWorks('having the state folder alone', () => haveAlone(settings.KEELSON_HOST_STATE), {
  signal,
  log,
})
const credential = await enrolled(settings.KEELSON_HOST_STATE, async (public_key) => {
  const token = settings.KEELSON_HOST_TOKEN
  if (!token) throw new Error('this host has not enrolled: it needs KEELSON_HOST_TOKEN')
  return untilItWorks(
    'enrolment',
    async () => {
      const { engine: _, ...host } = await about()
      return enrol(settings.KEELSON_API_URL, { token, public_key, name: settings.KEELSON_HOST_NAME, ...host })
    },
    // A token that is not good now never will be.
    {
      signal,
      log,
      hopeless: (error) => error instanceof InternalApiFault && (error.permanent || error.status === 401),
    },
  )
})
const { hostId } = credential

const api = makeInternalApi(settings.KEELSON_API_URL, credential)

const dockerHost = settings.KEELSON_DOCKER_HOST
const folder = await untilItWorks('looking for the engine’s files', () => logFolder(dockerHost), {
  signal,
  log,
})
const archives = folder !== null && settings.KEELSON_LOG_BACKLOG_MIB > 0
if (!archives) log.warn('output beyond containers’ caps is not archived: see docs/logs.md')
let machines: Machines | null = null
const files = joinLogFiles(makeDockerLogFiles({ hostId, dockerHost, folder }), () => machines?.files ?? null)
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
  range: range(settings.KEELSON_HOST_PORT_RANGE),
})
const containers = makeDockerEngine({
  hostId,
  dockerHost,
  ports,
  ...(archives ? { logBacklogMib: settings.KEELSON_LOG_BACKLOG_MIB, beforeRemoval: logs.shipAll } : {}),
  pauseImage: settings.KEELSON_PAUSE_IMAGE,
})
const backlogMib = settings.KEELSON_LOG_BACKLOG_MIB
machines = await openMachines(settings, {
  hostId,
  serveOn,
  ports,
  logs: archives ? { backlogMib, beforeRemoval: logs.shipAll } : null,
  log,
})
const machinesOfHost = lookIntoMachines(machines, log, signal)
const kinds = ['container' as const, ...(machines?.kinds ?? [])]
const engine = joinEngines(containers, machines)
const tokens = makePlaneTokens()
tokens.trust(hostId, credential.jwks)
const plane = await serveDataPlane(
  { engine, files, tokens, log },
  { address: planeAddress, port: settings.KEELSON_HOST_PORT },
)
const hosted = makeHostedDisks({ disks, engine, machines, wishOf: api.wishOf })
const configVars = async (id: string) => (await api.secretsOf(id)).config_vars
const keeper = makeDiskKeeper({ disks, hosted, log })
const networks = await openNetworks(settings, { hostId, engine, wanted: api.networks, log })
const later = (what: string) => (err: unknown) => log.warn({ err }, `${what}; trying again`)

const started = new Set<string>()
function startedWith(part: 'worker' | 'reports'): void {
  if (started.has(part)) return
  if (started.add(part).size === 2) log.info({ host_id: hostId }, 'ready')
}

let instances: FoundInstance[] = []
const reporting = keepReporting(
  {
    engine,
    about: async () => ({
      ...(await about()),
      kinds,
      machines: machinesOfHost(),
      underlay_address: underlayAddress(settings),
    }),
    disks: () => keeper.look(),
    onSeen: (found) => void networks.look(found).catch(later('NICs were not looked at')),
    send: api.report,
    onAccepted(answer, found) {
      tokens.trust(hostId, answer.jwks)
      if (answer.networks !== networks.version()) networks.apply().catch(later('networks were not changed'))
      instances = found
      keeper.act(answer, found)
      startedWith('reports')
    },
    log,
  },
  signal,
)

const mending = keepMending(networks, log, signal)
const keepingMachines = keepMachines(machines, log, signal)
const sampling = keepSampling({ engine, instances: () => instances, send: api.samples, log }, signal)

const shipping = archives ? logs.keep(() => instances, signal) : Promise.resolve()

const byState = () =>
  new Map([...Map.groupBy(instances, ({ state }) => state)].map(([state, { length }]) => [state, length]))
gauge('keelson_instances', 'Instances on this host, by what the engine says of them', byState, 'state')
gauge('keelson_log_lag_seconds', 'For how long some container’s output has been beyond its cap', logs.lagSec)
const scraped = await serveMetrics('host', settings, log)

/** One worker's life: until the host stops, or until Temporal is lost for good. */
async function work(): Promise<void> {
  const connection = await NativeConnection.connect({ address: settings.KEELSON_TEMPORAL_ADDRESS })
  try {
    const worker = await Worker.create({
      connection,
      namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
      taskQueue: hostQueue(hostId),
      activities: {
        ...makeContainersOnHost({ engine: containers, configVars, hosted, networks }),
        ...makeMachinesOnHost({ machines, api, hosted, networks }),
        ...makeDisksOnHost({ disks, engine, hosted, api }),
        ...makeNetworksOnHost({ networks, machines }),
      },
      interceptors: { activity: [measured, heartbeats, failures] },
      dataConverter: dataConverter(settings),
      // Most of them wait: for a command to take its grace, for a download, for their turn to start. Were it
      // few, one tenant's slow stops would hold up everybody's starts.
      maxConcurrentActivityTaskExecutions: 200,
      // A cancel comes with the answer to a heartbeat.
      maxHeartbeatThrottleInterval: '2 s',
      // A start that has begun ends within this; then what still waits is called off, and tried again by the
      // next worker.
      shutdownGraceTime: '3 s',
      shutdownForceTime: '6 s',
    })
    const stopped = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
    await worker.runUntil(async () => {
      startedWith('worker')
      if (!signal.aborted) await stopped
    })
  } finally {
    await connection.close()
  }
}

const backoff = makeBackoff()
while (!signal.aborted) {
  try {
    await work()
  } catch (error) {
    log.warn({ err: error }, 'no work from Temporal; trying again')
    await backoff.wait(signal)
  }
}
await Promise.all([reporting, sampling, shipping, mending, keepingMachines])
await plane.close()
await machines?.close()
await scraped.close()
log.info('stopped')
