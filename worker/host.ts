import { NativeConnection, Worker } from '@temporalio/worker'
import { failures } from '../activities/failures.ts'
import { heartbeats } from '../activities/heartbeats.ts'
import { makeContainerActivities } from '../activities/host/containers.ts'
import { readSettings } from '../config.ts'
import { makeDockerEngine } from '../drivers/docker.ts'
import { listenAddress } from '../lib/addresses.ts'
import type { Capacity } from '../lib/host-protocol.ts'
import { makeLogger } from '../lib/log.ts'
import { dataConverter, hostQueue } from '../lib/temporal.ts'
import { serveDataPlane } from './host/data-plane.ts'
import { enrolled } from './host/enrolment.ts'
import { enrol, InternalApiFault, makeInternalApi } from './host/internal-api.ts'
import { makePlaneTokens } from './host/plane-tokens.ts'
import { keepReporting } from './host/reporter.ts'
import { makeBackoff, untilItWorks } from './retry.ts'
import { installTemporalRuntime } from './temporal-runtime.ts'

// One host: runs the activities of its queue on this machine's engines, reports what it observes, and serves
// its data plane. It knows no database; what it may do, it may by the key that it enrolled.

const settings = readSettings('host')
const log = makeLogger('host', settings.KEELSON_LOG_LEVEL)
installTemporalRuntime(log)

const stopping = new AbortController()
const { signal } = stopping
for (const name of ['SIGTERM', 'SIGINT'] as const) process.once(name, () => stopping.abort())

const [from = 0, to = 0] = settings.KEELSON_HOST_PORT_RANGE.split('-').map(Number)
const engine = makeDockerEngine({
  dockerHost: settings.KEELSON_DOCKER_HOST,
  portRange: [from, to],
  publishOn: listenAddress(settings.KEELSON_HOST_ADDRESS),
})

const tokens = makePlaneTokens()
const plane = await serveDataPlane(
  { engine, tokens, log },
  { address: settings.KEELSON_HOST_ADDRESS, port: settings.KEELSON_HOST_PORT },
)

async function about() {
  const { name, version, ...machine } = await engine.info()
  const capacity: Capacity = {
    cpu_cores: settings.KEELSON_HOST_CPU_CORES ?? machine.cpu_cores,
    // The platform and the system live in what is left.
    memory_mib: settings.KEELSON_HOST_MEMORY_MIB ?? Math.max(machine.memory_mib - 1024, 1),
    disk_gib: machine.disk_gib,
  }
  return {
    data_plane_url: `http://${settings.KEELSON_HOST_ADDRESS}:${plane.port}`,
    address: settings.KEELSON_HOST_ADDRESS,
    capacity,
    engine: { name, version },
  }
}

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
tokens.trust(hostId, credential.jwks)
const api = makeInternalApi(settings.KEELSON_API_URL, credential)

const started = new Set<string>()
function startedWith(part: 'worker' | 'reports'): void {
  if (started.has(part)) return
  if (started.add(part).size === 2) log.info({ host_id: hostId }, 'ready')
}

const reporting = keepReporting(
  {
    engine,
    about,
    send: api.report,
    onAccepted({ jwks }) {
      tokens.trust(hostId, jwks)
      startedWith('reports')
    },
    log,
  },
  signal,
)

/** One worker's life: until the host stops, or until Temporal is lost for good. */
async function work(): Promise<void> {
  const connection = await NativeConnection.connect({ address: settings.KEELSON_TEMPORAL_ADDRESS })
  try {
    const worker = await Worker.create({
      connection,
      namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
      taskQueue: hostQueue(hostId),
      activities: makeContainerActivities({ engine, configVars: api.configVars }),
      interceptors: { activity: [heartbeats, failures] },
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
await reporting
await plane.close()
log.info('stopped')
