import { existsSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { makeHostedDisks } from '../activities/host/disk-mounts.ts'
import { makeTurns } from '../activities/host/turns.ts'
import { readSettings } from '../config.ts'
import { pingDocker } from '../drivers/docker/connection.ts'
import { describeDocker } from '../drivers/docker/engine.ts'
import { makeTaskLogs } from '../drivers/swarm/task-logs.ts'
import { makeTaskSamples } from '../drivers/swarm/task-samples.ts'
import { useLauncher } from '../drivers/system/programs.ts'
import { watchDisk } from '../lib/disk-room.ts'
import { makeLogger } from '../lib/log.ts'
import { gauge, serveMetrics } from '../lib/metrics.ts'
import { freeStartMemory } from '../lib/start-memory.ts'
import { haveAlone } from './host/alone.ts'
import { serveDataPlane } from './host/data-plane.ts'
import { makeDoors } from './host/doors.ts'
import {
  findLogFolder,
  openDisks,
  openEngines,
  planeAddress,
  publishablePorts,
  serveOn,
  withAccessLogs,
} from './host/engines.ts'
import { enrolled, planeIdentity } from './host/enrolment.ts'
import { observeInstances } from './host/instances.ts'
import { openFence } from './host/fence.ts'
import { enrol, makeInternalApi } from './host/internal-api.ts'
import { sampleLoadBalancers } from './host/load-balancer-sampler.ts'
import { dialMachines, untilTheyStart } from './host/machine-engines.ts'
import { machineKindsOf } from './host/machine-kinds.ts'
import { activitiesOf, type HostPart } from './host/part.ts'
import { containersPart } from './host/parts/containers.ts'
import { databaseArchivesPart } from './host/parts/database-archives.ts'
import { databaseMetricsPart } from './host/parts/database-metrics.ts'
import { databaseUsersPart, openDatabaseUsers } from './host/parts/database-users.ts'
import { deployPart, openRegistries, openUploads } from './host/parts/deploy.ts'
import { disksPart } from './host/parts/disks.ts'
import { loadBalancersPart } from './host/parts/load-balancers.ts'
import { lookIntoMachines, machinesPart } from './host/parts/machines.ts'
import { networksPart, openNetworks, tunnelKeysOf, underlayAddress } from './host/parts/networks.ts'
import { runnersPart } from './host/parts/runners.ts'
import { toolProbesPart } from './host/parts/tool-probes.ts'
import { makePlaneTokens } from './host/plane-tokens.ts'
import { makeRegistryRelay } from './host/registry-relay.ts'
import { makeStoreRelay } from './host/store-relay.ts'
import { keepReporting } from './host/reporter.ts'
import { sampleReplicas } from './host/replica-sampler.ts'
import { keepSampling, sampleInstances } from './host/sampler.ts'
import { keepAlive, watchEngine } from './host/sign-of-life.ts'
import { taskSlots } from './host/task-slots.ts'
import { PlatformFault } from './platform-fault.ts'
import { gatewayAt, keepWorking } from './queue-work.ts'
import { untilItWorks } from './retry.ts'
import { installTemporalRuntime } from './temporal-runtime.ts'
import { endsWithin } from './within.ts'

// The host worker: runs the activities of its queue on this host's engines, reports what it observes, and serves the
// data plane. It has no database access; the enrolled key is its only credential.

const settings = readSettings('host')
const log = makeLogger('host', settings.KEELSON_LOG_LEVEL)
installTemporalRuntime(log, settings)
const launcher = settings.KEELSON_HOST_LAUNCHER
if (existsSync(launcher)) useLauncher(launcher)
else log.warn({ launcher }, 'there is no launcher: this host starts programs by forking, which takes longer')

const stopping = new AbortController()
const { signal } = stopping
for (const name of ['SIGTERM', 'SIGINT'] as const) process.once(name, () => stopping.abort())
const insisting = { signal, log }

// Each of its pieces of work is done again by the next worker.
const keptEndMs = 5_000
const opensWithinMs = 10_000

/** Errors that no retry can fix. A 401 is one here: a rejected token stays invalid. */
const hopeless = (error: unknown): boolean =>
  error instanceof PlatformFault && (error.permanent || error.status === 401)

const authoritiesIn = (file: string | undefined): string | null =>
  file === undefined ? null : readFileSync(file, 'utf8')

const { disks, roomGib } = await openDisks(settings, log)

const planeUrl = `https://${planeAddress(settings)}:${settings.KEELSON_HOST_PORT}`
/** By the platform's last answer: it keeps to the address with which the host enrolled. */
let reachedAt = planeUrl

async function about() {
  const { name, version, ...machine } = await describeDocker(settings.KEELSON_DOCKER_HOST)
  return {
    data_plane_url: planeUrl,
    data_plane_certificate: tls.certificate,
    address: settings.KEELSON_HOST_ADDRESS,
    capacity: {
      cpu_cores: settings.KEELSON_HOST_CPU_CORES ?? machine.cpu_cores,
      // Leaves the rest to the platform and the system.
      memory_mib: settings.KEELSON_HOST_MEMORY_MIB ?? Math.max(machine.memory_mib - 1024, 1),
      disk_gib: await roomGib(),
    },
    engine: { name, version },
  }
}

watchDisk(settings.KEELSON_HOST_STATE, (words, isFuller) => log[isFuller ? 'warn' : 'info'](words))
await untilItWorks('locking the state folder', () => haveAlone(settings.KEELSON_HOST_STATE), insisting)
const tls = await planeIdentity(settings.KEELSON_HOST_STATE)
const credential = await enrolled(settings.KEELSON_HOST_STATE, async (public_key) => {
  const token = settings.KEELSON_HOST_TOKEN
  if (!token) throw new Error('this host has not enrolled: it needs KEELSON_HOST_TOKEN')
  const ask = async () => {
    const { engine: _, ...host } = await about()
    return enrol(settings.KEELSON_API_URL, { token, public_key, name: settings.KEELSON_HOST_NAME, ...host })
  }
  return untilItWorks('enrolment', ask, { ...insisting, hopeless })
})
const { hostId } = credential
const api = makeInternalApi(settings.KEELSON_API_URL, credential)

// What follows waits for the engine, which may not answer. A program that fails before gives no sign of life: it would
// look as if it worked.
const opening = new AbortController()
const ping = (inTime: AbortSignal) => pingDocker(settings.KEELSON_DOCKER_HOST, inTime)
const alive = delay(opensWithinMs, undefined, { signal: opening.signal })
  .catch(() => undefined)
  .then(() => keepAlive({ engine: watchEngine(ping, log), send: api.alive, log }, signal))

const folder = await untilItWorks('looking for the engine’s files', () => findLogFolder(settings), insisting)
const fence = await openFence(settings, hostId, insisting)
const opened = { hostId, folder, api, network: fence.network, serveOn: serveOn(settings), log }
const { containers, machines, balancers, images, layers, loops, engine, files, logs, archives } =
  await openEngines(settings, opened)
const machinesOfHost = lookIntoMachines(machines, log, signal)
const hosted = makeHostedDisks({ disks, engine, machines, wantedDisk: api.wantedDisk })
const keys = await tunnelKeysOf(settings)
const networks = await openNetworks(settings, { hostId, keys, engine, wanted: api.networks, log })
const configVars = async (id: string) => (await api.secretsOf(id)).config_vars
const doors = makeDoors({
  run: settings.KEELSON_HOST_DOORS_RUN,
  outside: {
    gatewayUrl: settings.KEELSON_GATEWAY_URL,
    gatewayAuthorities: () => authoritiesIn(settings.KEELSON_GATEWAY_CA_FILE),
    apiUrl: settings.KEELSON_API_URL,
    modelsUrl: settings.KEELSON_MODELS_URL,
  },
  namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
  log,
})
const takesRunners = await doors.ready()
const seen = {
  containers: observeInstances(containers, log),
  machines: machines && observeInstances(machines, log),
}
const instances = () => [...seen.containers.found(), ...(seen.machines?.found() ?? [])]
const balancing = loadBalancersPart({ engine: balancers, hostId, networks, wanted: api.loadBalancers, log })
const accessLogs = () => balancing.found().flatMap(({ id, log: of }) => (of ? [{ id, ...of }] : []))

const inMachines = { engine: untilTheyStart(engine), dockerHost: settings.KEELSON_DOCKER_HOST }
const registries = openRegistries(inMachines)
const databaseUsers = openDatabaseUsers({ engine: inMachines.engine, wanted: api.databaseUsers, log })

/** Which machines deploy servers may have here. */
const machineKinds = () =>
  machineKindsOf({
    containersMay: settings.KEELSON_HOST_CONTAINER_MACHINES === 'true',
    vmsMay: settings.KEELSON_HOST_VM_MACHINES,
    vmsRun: machines?.kinds.includes('vm') ?? false,
    accelerator: machinesOfHost()?.accelerator ?? null,
  })

const runningMachines = (): string[] =>
  instances().flatMap(({ id, machine, state }) => (machine && state === 'running' ? [id] : []))

/** The machines whose containers are looked at. */
const watchedMachines = (): string[] =>
  instances().flatMap(({ id, kind, machine, state }) => {
    // Without KVM, a look would cost a VM seconds of its processor.
    const isSlow = kind === 'vm' && machinesOfHost()?.accelerator !== 'kvm'
    return machine && state === 'running' && !isSlow ? [id] : []
  })

// Each start keeps a core busy: more at once delay each other, and with them that of a tenant whose turn it is.
const turns = makeTurns(availableParallelism())

const parts: HostPart[] = [
  containersPart({
    engine: containers,
    instances: seen.containers,
    images,
    layers,
    loops,
    configVars,
    registryLogin: api.registryLogin,
    hosted,
    networks,
    doors,
    turns,
    log,
  }),
  runnersPart({ doors, instances: seen.containers }),
  machinesPart({ machines, instances: seen.machines, api, hosted, networks, log }),
  disksPart({ disks, hosted, engine, instances, api, log }),
  networksPart({ networks, machines, instances, log }),
  balancing,
  deployPart({ ...inMachines, registries, machines: watchedMachines, api, log }),
  databaseUsersPart(databaseUsers),
  toolProbesPart({ engine, api }),
  databaseMetricsPart({ engine, machines: watchedMachines, api, log }),
  databaseArchivesPart({
    engine,
    machines: runningMachines,
    api,
    everySec: settings.KEELSON_ARCHIVE_EVERY_SEC,
    log,
  }),
]

function applyWanted(name: string): boolean {
  const part = parts.find((one) => one.name === name)
  part
    ?.applyWanted?.()
    .catch((err: unknown) =>
      log.warn({ err, part: name }, 'this part is not in its wanted state; trying again'),
    )
  return part !== undefined
}

const tokens = makePlaneTokens()
tokens.trust(hostId, credential.jwks)
const plane = await serveDataPlane(
  {
    engine: withAccessLogs(engine, balancers),
    files,
    balancers,
    services: makeTaskLogs(dialMachines(engine)),
    uploads: openUploads(engine),
    registries: makeRegistryRelay({ registries, registry: api.builds.registry }),
    stores: makeStoreRelay(engine),
    tokens,
    applyWanted,
    log,
  },
  { address: planeAddress(settings), port: settings.KEELSON_HOST_PORT, tls },
)

// At once: the worker below takes seconds to end its activities.
signal.addEventListener('abort', () => void plane.closeConsoles())

const started = new Set<string>()
function startedWith(what: 'worker' | 'reports'): void {
  if (started.has(what)) return
  if (started.add(what).size < 2) return
  log.info({ host_id: hostId }, 'ready')
  freeStartMemory()
}

const reporting = keepReporting(
  {
    parts,
    about: async () => ({
      ...(await about()),
      kinds: [
        'container',
        ...(takesRunners ? ['runner' as const] : []),
        ...(machines?.kinds ?? []),
        ...(balancers ? ['load_balancer' as const] : []),
        ...machineKinds(),
      ],
      underlay_address: underlayAddress(settings),
      tunnel_key: keys?.public_key ?? null,
      published_ports: publishablePorts(settings),
    }),
    machines: machinesOfHost,
    send: api.report,
    onAccepted(answer) {
      tokens.trust(hostId, answer.jwks)
      if (answer.data_plane_url !== reachedAt) {
        reachedAt = answer.data_plane_url
        if (reachedAt !== planeUrl)
          log.warn({ url: reachedAt }, 'the platform reaches this host only at this URL')
      }
      startedWith('reports')
    },
    log,
  },
  signal,
)
const samplers = [
  sampleInstances({ engine, instances, send: api.samples }),
  sampleReplicas({
    tasks: makeTaskSamples((machineId, command) => engine.pipe(machineId, command)),
    machines: watchedMachines,
    seen: (running) => databaseUsers.look(running),
    send: api.replicas,
    log,
  }),
]
if (balancers) {
  const ids = () => balancing.found().map(({ id }) => id)
  samplers.push(sampleLoadBalancers({ engine: balancers, ids, send: api.loadBalancerSamples }))
}
opening.abort()
const kept = [
  alive,
  reporting,
  keepSampling(samplers, log, signal),
  ...(archives ? [logs.keep(() => [...instances(), ...accessLogs()], signal)] : []),
  fence.keep(log, signal),
  ...parts.map(async (part) => part.keep?.(signal)),
]

const byState = (all: { state: string }[]) =>
  new Map([...Map.groupBy(all, ({ state }) => state)].map(([state, { length }]) => [state, length]))
gauge(
  'keelson_instances',
  'Instances on this host, by what the engine says of them',
  () => byState(instances()),
  'state',
)
gauge(
  'keelson_load_balancers',
  'Load balancers on this host, by what the engine says of them',
  () => byState(balancing.found()),
  'state',
)
gauge('keelson_log_lag_seconds', 'For how long some output has been beyond its cap', logs.lagSec)
const scraped = await serveMetrics('host', settings, log)

const onStarted = (): void => startedWith('worker')
const working = {
  credential: { party: { kind: 'host', id: hostId } as const, key: credential.key },
  gateway: () => gatewayAt(settings.KEELSON_GATEWAY_URL, settings.KEELSON_GATEWAY_CA_FILE),
  namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
  codecKeys: api.codecKeys,
  activities: activitiesOf(parts),
  slots: { tuner: taskSlots(turns) },
  onStarted,
  log,
}
await keepWorking(working, signal)
// What looks into instances may wait for an answer of a tenant's program, which may never come.
if (!(await endsWithin(keptEndMs, Promise.all(kept)))) log.warn('some background work was cut off')
await plane.close()
for (const part of parts) await part.close?.()
await scraped.close()
log.info('stopped')
process.exit()
