import { request } from 'node:http'
import type { Duplex } from 'node:stream'
import { cancellationSignal } from '@temporalio/activity'
import { InstanceNotFound, ServiceFailed } from '../../drivers/errors.ts'
import type {
  FoundSwarmService,
  MachineVolumes,
  RunningContainers,
  SwarmServices,
  TaskCommandResult,
  TaskCommands,
  TaskLogs,
} from '../../drivers/swarms.ts'
import { StreamAgent } from '../../drivers/system/stream-agent.ts'
import {
  type AwaitedContainer,
  type DeployServices,
  ownerLabel,
  type ServingPlace,
  type VolumeOwnerKind,
} from '../../lib/deploy-protocol.ts'
import { makeNamedQueues } from '../../lib/queue.ts'
import { makePauses } from './pauses.ts'

interface Parts {
  services: SwarmServices
  /** Fetches all services of a deploy server, with their secrets. */
  wanted: (deployServerId: string) => Promise<DeployServices>
  output: TaskLogs
  commands: TaskCommands
  volumes: MachineVolumes
  containers: RunningContainers
  /** Connects from a machine to an address in its VPC. */
  connectFrom: (machineId: string, address: string, port: number) => Promise<Duplex>
  /** Called after each change of a Swarm's services. */
  changed: (deployServerId: string, managerId: string) => void
  /**
   * Whether something listens at an address, seen from a machine, now or within two seconds. A try takes at most `trySec`.
   */
  reaches: (machineId: string, address: string, port: number, trySec?: number) => Promise<boolean>
}

interface Replica {
  machine_id: string
  service_id: string
}

const longestPauseMs = 300
const lastLines = 50
const longestLine = 500
const answersWithinMs = 3_000
/** While a container starts, its machine loses what comes for it, and TCP sends that again only after a second. */
const tryOfStartSec = 0.05
/** How long a replica without a port runs before it counts: one that is broken ends soon. */
const settlesWithinMs = 5_000
/** A replica that failed so often is not waited for. */
const failuresAtMost = 3

/** Activities for applications, on the host of the deploy server's control plane. All are idempotent. */
export function makeDeployServicesOnHost(parts: Parts) {
  const { services, wanted, changed, connectFrom, reaches, output, commands, volumes, containers } = parts
  // An older answer must not overwrite a newer one.
  const inTurn = makeNamedQueues()

  async function serves(
    managerId: string,
    place: ServingPlace,
    path: string | null,
    trySec?: number,
  ): Promise<boolean> {
    const { ip_address, machine_port } = place
    if (machine_port === null) return true
    try {
      if (path === null) return await reaches(managerId, ip_address, machine_port, trySec)
      return await answers(() => connectFrom(managerId, ip_address, machine_port), path)
    } catch {
      return false
    }
  }

  return {
    /** Brings the Swarm to the services that the platform wants now. Fails by the owner's alone, if others' are refused. */
    applyServicesOnHost: (
      deployServerId: string,
      managerId: string,
      ownerId: string | null = null,
    ): Promise<void> =>
      inTurn(deployServerId, async () => {
        const { services: all } = await wanted(deployServerId)
        await services.apply(managerId, all, ownerId, cancellationSignal())
        changed(deployServerId, managerId)
      }),

    /** The last lines that a service wrote. None if its machine has no container of it. */
    async lastLinesOnHost(machineId: string, serviceId: string): Promise<string[]> {
      try {
        const signal = cancellationSignal()
        const entries = await Array.fromAsync(
          await output(machineId, serviceId, { lines: lastLines, signal }),
        )
        return entries.map(({ line }) => line.slice(0, longestLine))
      } catch (error) {
        if (error instanceof InstanceNotFound) return []
        throw error
      }
    },

    /** Destroys an owner's volumes but these, when the containers that use them have ended. */
    keepVolumesOnHost: (
      machineId: string,
      ownerId: string,
      names: string[],
      withinSec: number,
      kind: VolumeOwnerKind = 'application',
    ): Promise<void> =>
      volumes.keep(
        machineId,
        { name: ownerLabel(kind), value: ownerId },
        names,
        withinSec,
        cancellationSignal(),
      ),

    /** Waits until no container of an owner runs on a machine. Throws ServiceFailed after `withinSec`. */
    async awaitEndedOnHost(
      machineId: string,
      kind: VolumeOwnerKind,
      ownerId: string,
      withinSec: number,
    ): Promise<void> {
      const pause = makePauses(longestPauseMs)
      const deadline = performance.now() + withinSec * 1000
      while ((await containers(machineId, { name: ownerLabel(kind), value: ownerId })) > 0) {
        if (performance.now() > deadline) throw new ServiceFailed('Its containers have not ended')
        await pause()
      }
    },

    /** Waits until these containers are as awaited. Throws ServiceFailed with the reason, also after `withinSec`. */
    async awaitContainersOnHost(
      managerId: string,
      awaited: AwaitedContainer[],
      withinSec: number,
    ): Promise<void> {
      const pause = makePauses(longestPauseMs)
      const deadline = performance.now() + withinSec * 1000
      for (;;) {
        const found = new Map((await services.list(managerId)).map((one) => [one.id, one]))
        const states = awaited.map((one) => ({ one, service: found.get(one.service_id) }))
        const left = states.filter(({ one, service }) => !isThere(one, service))
        if (left.length === 0) return
        const failing = left.find(({ one, service }) => hasFailed(one, service))
        const [late] = performance.now() > deadline ? left : []
        const ill = failing ?? late
        if (ill) {
          const when = failing ? 'does not run' : `is not ready after ${withinSec} s`
          throw new ServiceFailed(`The container ${ill.one.name} ${when}: ${whyNot(ill.service)}`)
        }
        await pause()
      }
    },

    /** Runs a command in a replica, at most once: a retry would run it again. */
    runInReplicaOnHost: (
      { machine_id, service_id }: Replica,
      of: { command: string; mark: string; timeoutSec: number },
    ): Promise<TaskCommandResult> => commands.run(machine_id, service_id, of, cancellationSignal()),

    /** Ends a command that may still run. */
    endInReplicaOnHost: ({ machine_id, service_id }: Replica, mark: string): Promise<void> =>
      commands.end(machine_id, service_id, mark),

    /**
     * Waits until all of these serve. Throws ServiceFailed with the reason, also after `withinSec`; `what` is the subject of
     * its sentences. `isAlone`: nothing else can listen at their ports, such as a former container.
     */
    async awaitServingOnHost(
      managerId: string,
      places: ServingPlace[],
      {
        path,
        what = 'The release',
        isAlone = false,
      }: { path: string | null; what?: string; isAlone?: boolean },
      withinSec: number,
    ): Promise<void> {
      const pause = makePauses(longestPauseMs)
      const deadline = performance.now() + withinSec * 1000
      const served = async (trySec?: number): Promise<boolean> =>
        (await Promise.all(places.map((place) => serves(managerId, place, path, trySec)))).every(Boolean)
      const hasPorts = places.every(({ machine_port }) => machine_port !== null)
      const settled = isAlone ? isRunning : makeSettling()
      for (;;) {
        // What answers runs. The Swarm says so only some 0.2 s later.
        const answering = isAlone && hasPorts ? served(tryOfStartSec) : null
        const found = new Map((await services.list(managerId)).map((one) => [one.id, one]))
        const states = places.map((place) => ({ place, service: found.get(place.service_id) }))
        const failing = states.find(({ service }) => (service?.failures ?? 0) >= failuresAtMost)
        if (failing) throw new ServiceFailed(`${what} does not run: ${whyNot(failing.service)}`)
        const runs = states
          .map(({ place, service }) => (place.machine_port === null ? settled(service) : isRunning(service)))
          .every(Boolean)
        if ((await answering) || (runs && (await served()))) return
        // What runs at the deadline, and only has to go on for some seconds, has not failed.
        const settlesMs = !hasPorts && states.every(({ service }) => isRunning(service)) ? settlesWithinMs : 0
        if (performance.now() > deadline + settlesMs) {
          const ill = states.find(({ service }) => !isRunning(service) || service?.failures)
          const why = ill || !hasPorts ? whyNot(ill?.service) : silent(path)
          throw new ServiceFailed(`${what} did not serve within ${withinSec} s: ${why}`)
        }
        await pause()
      }
    },
  }
}

const isRunning = (service: FoundSwarmService | undefined): boolean => service?.task?.state === 'running'

/** Whether a service has run in one container for some seconds. */
function makeSettling() {
  const seen = new Map<string, { container_id: string | null; since: number }>()
  return (service: FoundSwarmService | undefined): boolean => {
    if (!service?.task || !isRunning(service)) return false
    const { container_id } = service.task
    const before = seen.get(service.id)
    const since = before?.container_id === container_id ? before.since : performance.now()
    seen.set(service.id, { container_id, since })
    return performance.now() - since >= settlesWithinMs
  }
}

function isThere({ until }: AwaitedContainer, service: FoundSwarmService | undefined): boolean {
  const { task } = service ?? {}
  if (!task) return false
  // What was a job has been there, and is no more.
  return task.completed || (until === 'begun' ? task.begun : until === 'running' && task.state === 'running')
}

/** A job that has failed is not started again. What ends may only wait for another container, and is started again. */
const hasFailed = (
  { until }: AwaitedContainer,
  { failures = 0, task = null }: Partial<FoundSwarmService> = {},
): boolean =>
  (failures >= failuresAtMost && task?.rejected === true) ||
  (until === 'completed' && task?.state === 'ended' && failures > 0)

const whyNot = (service: FoundSwarmService | undefined): string =>
  service?.task?.reason ?? 'it is still starting'
const silent = (path: string | null): string =>
  path === null ? 'nothing listens on its port' : `GET ${path} does not answer with 2xx or 3xx`

const answers = (connect: () => Promise<Duplex>, path: string): Promise<boolean> =>
  new Promise((resolve, reject) => {
    const asked = request(
      {
        agent: new StreamAgent(connect),
        host: 'application',
        path,
        headers: { host: 'health-check', connection: 'close', 'user-agent': 'keelson-health-check' },
        // Not `timeout`: the stream is no socket.
        signal: AbortSignal.timeout(answersWithinMs),
      },
      (response) => {
        const { statusCode = 0 } = response
        response.destroy()
        resolve(statusCode >= 200 && statusCode < 400)
      },
    )
    asked.on('error', reject)
    asked.end()
  })
