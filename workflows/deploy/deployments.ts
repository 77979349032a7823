import {
  ActivityFailure,
  type ActivityOptions,
  ApplicationFailure,
  CancellationScope,
  isCancellation,
  patched,
  proxyActivities,
  proxyLocalActivities,
  sleep,
  TimeoutFailure,
} from '@temporalio/workflow'
import type { PlaceOnHost, VolumeOwnerKind } from '../../lib/deploy-protocol.ts'
import type { RouteTargets } from '../../drivers/load-balancers.ts'
import type { DeploymentActivities, Routed } from '../../activities/deploy/deployments.ts'
import type { WantedVolumes } from '../../activities/deploy/volumes.ts'
import type { HostActivities } from '../../activities/host/index.ts'
import { isFailure } from '../carry-out.ts'
import { durable, type Work } from '../durable.ts'
import { isAway, on } from '../hosts.ts'
import { ensureRegistry } from './builds.ts'

const platform = proxyLocalActivities<DeploymentActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** The host of a load balancer. One that does not answer applies its routes when it is back. */
const balancing = (hostId: string) =>
  proxyActivities<HostActivities>({
    taskQueue: `host-${hostId}`,
    scheduleToStartTimeout: '15 s',
    startToCloseTimeout: '60 s', // a reload
    heartbeatTimeout: '10 s', // detects a killed host worker
    retry: { initialInterval: '500 ms', maximumInterval: '5 s', maximumAttempts: 12 },
  })

// The longest wait for a turn is another deployment's whole time, so the looks become rare.
const firstWaitMs = 300
const longestWaitMs = 5_000

async function awaitTurn(id: string): Promise<void> {
  for (let waitMs = firstWaitMs; ; waitMs = Math.min(waitMs * 2, longestWaitMs)) {
    const turn = await platform.takeTurn(id)
    if (turn === 'mine') return
    if (turn === 'superseded')
      throw ApplicationFailure.nonRetryable('A newer deployment replaced it', 'superseded')
    if (turn === 'gone')
      throw ApplicationFailure.nonRetryable('The application no longer exists', 'not_found')
    await sleep(waitMs)
  }
}

/** `orLater`: what is done stays done, so a load balancer that does not answer applies its routes when it is back. */
interface Routing {
  orLater?: boolean
}

/** Has the load balancer send requests to these deployments alone, and waits until it does. */
export const route = (appId: string, deploymentIds: string[], routing: Routing = {}): Promise<void> =>
  balanceAnswering(async () => {
    const routed = await platform.routeTo(appId, deploymentIds)
    return routed && { ...routed, targets: null }
  }, routing)

/** The same, and waits until the load balancer has found the newest of them healthy. */
const routeToNew = (appId: string, deploymentIds: string[], routing: Routing = {}): Promise<void> =>
  balanceAnswering(() => platform.routeTo(appId, deploymentIds), routing)

/** A host that has just been lost still counts as one that answers, for half a minute. */
const triesToBalance = 3

async function balanceAnswering(
  routed: () => Promise<Balancing | null>,
  { orLater = false }: Routing,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    const now = await routed()
    try {
      return await balance(now)
    } catch (error) {
      // Earlier histories end at the first failure.
      if (isCancellation(error) || !patched('routes are tried again')) throw error
      if (tries < triesToBalance && isNotTakenUp(error)) continue
      if (!orLater) throw error
      return
    }
  }
}

/** Targets of a load balancer that run, and are to be found healthy by checks from now on. */
interface Balancing extends Pick<Routed, 'lb_id' | 'host_ids'> {
  targets: RouteTargets | RouteTargets[] | null
}

/**
 * Waits until the load balancer sends requests to these targets, and each of its hosts that answer has found them healthy by
 * a check that begins from now on: what earlier checks said may be of the time before the targets ran. It waits some
 * seconds at most. Targets that are not found healthy are noted in the activity of the deploy server.
 */
export async function balance(routed: Balancing | null): Promise<void> {
  if (!routed) return
  const { lb_id, targets, host_ids } = routed
  const found = await Promise.all(
    host_ids.map((hostId) => balancing(hostId).runLoadBalancerOnHost(lb_id, targets)),
  )
  const unreached = found.flatMap((one) => one.unreached)
  if (unreached.length) await platform.noteUnreached(lb_id, unreached)
}

/** A control plane whose host is lost is replaced within minutes. */
const replacedWithinMs = 15 * 60_000

/**
 * Has the host of the control plane take a step of some minutes at most, also if the control plane moves to another host
 * meanwhile. Fails a quarter of an hour after it has first not answered.
 */
export async function onManager<T>(
  deployServerId: string,
  step: (host: HostActivities, machineId: string) => Promise<T>,
  more: Partial<ActivityOptions> = {},
): Promise<T> {
  let until: number | null = null
  for (;;) {
    const { host_id, machine_id } = await platform.managerOf(deployServerId)
    const options: Partial<ActivityOptions> = {
      // A host that does not take it up may be lost, and the control plane on its way to another one.
      scheduleToStartTimeout: '1 minute',
      // An engine that does not answer may be that of a machine that is no longer the control plane.
      scheduleToCloseTimeout: '5 minutes',
      ...more,
    }
    try {
      return await step(on(host_id, options), machine_id)
    } catch (error) {
      if (!isAway(error) && !(await hasMoved(deployServerId, machine_id, error))) throw error
      until ??= Date.now() + replacedWithinMs
      if (Date.now() >= until) throw error
    }
  }
}

/** Whether a step failed because its machine was no longer the control plane. */
async function hasMoved(deployServerId: string, machineId: string, error: unknown): Promise<boolean> {
  if (!(error instanceof ActivityFailure) || !gone.some((code) => isFailure(error.cause, code))) return false
  if (!patched('steps follow the control plane')) return false
  return (await platform.managerOf(deployServerId)).machine_id !== machineId
}

const gone = ['instance_not_found', 'instance_not_running', 'not_found']

/** Brings the Swarm to what the records want. Fails if it refuses a service of this owner. */
export const apply = (deployServerId: string, ownerId: string | null = null): Promise<void> =>
  onManager(deployServerId, (host, machineId) => host.applyServicesOnHost(deployServerId, machineId, ownerId))

const isNotTakenUp = (error: unknown): boolean =>
  error instanceof ActivityFailure &&
  error.cause instanceof TimeoutFailure &&
  error.cause.timeoutType === 'SCHEDULE_TO_START'

/** Destroys the volumes that no storage has any more; all of them, unless it keeps any. */
export async function tidyVolumes(appId: string, keepsAny: boolean): Promise<void> {
  const volumes = await platform.volumesOf(appId, keepsAny)
  if (!volumes) return
  await keepVolumes('application', appId, volumes, keepsAny ? triesToTidy : triesToDestroy)
  if (volumes.names.length === 0) await platform.noteVolumesGone(appId)
}

/** The owner's next start tries again. */
export const triesToTidy = 3
/** A worker that has ended is back within these tries, which take almost three minutes. */
const triesToDestroy = 20

/** Destroys the volumes of an owner but these. */
export const keepVolumes = (
  kind: VolumeOwnerKind,
  ownerId: string,
  { host_id, machine_id, names, within_sec }: WantedVolumes,
  maximumAttempts = triesToDestroy,
): Promise<void> =>
  on(host_id, {
    // The owner's next deletion tries again, and the deletion of the deploy server destroys the worker's disk.
    scheduleToStartTimeout: '1 minute',
    retry: { initialInterval: '1 s', maximumInterval: '10 s', maximumAttempts },
  }).keepVolumesOnHost(machine_id, ownerId, names, within_sec, kind)

/** For the last output of a release that is taken back, which is worth no wait for a host that is away. */
const reading = (hostId: string) =>
  on(hostId, {
    scheduleToStartTimeout: '5 s',
    startToCloseTimeout: '15 s',
    retry: { maximumAttempts: 2 },
  })

/** Why a release does not serve is often in its output, which ends with it. */
async function keepOutput(id: string, replicas: PlaceOnHost[]): Promise<void> {
  const [first] = replicas
  if (!first) return
  const lines = await reading(first.host_id)
    .lastLinesOnHost(first.machine_id, first.service_id)
    .catch(() => [])
  await platform.keepOutput(id, first.node, lines)
}

/** Undoes a release that does not serve yet. */
async function takeBack(id: string, deployServerId: string): Promise<void> {
  const left = await platform.takeReleaseBack(id)
  if (!left) return
  const { app_id, current_id, replicas } = left
  try {
    await route(app_id, current_id === null ? [] : [current_id], { orLater: true })
  } finally {
    await keepOutput(id, replicas)
    await apply(deployServerId, app_id)
  }
}

/** A wait whose own limit ends it before these. */
export const servesWithin = (withinSec: number): Partial<ActivityOptions> => ({
  startToCloseTimeout: `${withinSec + 120} s`,
  scheduleToCloseTimeout: `${withinSec + 300} s`,
})

/**
 * Waits until the requests that the load balancer has just sent to what is about to end are answered. `drain_sec`: how long
 * an application wants to have for them.
 */
export const awaitAnswers = (drain_sec: number): Promise<void> =>
  sleep(3_000 + Math.min(drain_sec, 10) * 1000)

async function release(
  work: Work<unknown>,
  phase: (name: string, line: string) => Promise<void>,
): Promise<void> {
  const { id, undo, settle } = work
  const { app_id, deploy_server_id, current_id, within_sec, path, drain_sec, built } =
    await platform.deploymentFacts(id)
  await phase('starting', 'starting the replicas of the release')
  undo(() => takeBack(id, deploy_server_id))
  const places = await platform.placeRelease(id)
  if (built) await ensureRegistry(deploy_server_id, id).catch(() => undefined)
  await apply(deploy_server_id, app_id)

  await phase('checking', 'waiting until the release serves')
  await onManager(
    deploy_server_id,
    (host, machineId) => host.awaitServingOnHost(machineId, places, { path }, within_sec),
    servesWithin(within_sec),
  )

  await phase('switching', 'sending requests to the release')
  if (current_id !== null) await routeToNew(app_id, [current_id, id])
  await settle(() => platform.settleRelease(app_id, id))
  // From here on it serves, and a cancel has nothing to go back to.
  await CancellationScope.nonCancellable(async () => {
    work.undo(() => platform.endTurn(id))
    await (current_id === null ? routeToNew : route)(app_id, [id], { orLater: true })
    if (current_id !== null) {
      await phase('draining', 'ending the former release')
      await awaitAnswers(drain_sec)
    }
    await platform.wantOnly(app_id, [id])
    await apply(deploy_server_id, app_id)
    await tidyVolumes(app_id, true).catch(() => undefined)
  })
}

async function stop(
  work: Work<unknown>,
  phase: (name: string, line: string) => Promise<void>,
): Promise<void> {
  const { app_id, deploy_server_id } = await platform.deploymentFacts(work.id)
  await phase('stopping', 'stopping the application')
  await CancellationScope.nonCancellable(async () => {
    await platform.settleRelease(app_id, null)
    await route(app_id, [], { orLater: true })
    await platform.wantOnly(app_id, [])
    await apply(deploy_server_id, app_id)
  })
}

/** Releases an application: starts the new release beside the old one, and ends the old one when the new one serves. */
export const createDeployment = durable(
  async (work) => {
    const { id, undo, progress } = work
    const phase = async (name: string, line: string): Promise<void> => {
      progress(line)
      await platform.beginPhase(id, name, line)
    }
    progress('waiting for its turn')
    undo(() => platform.endTurn(id))
    await awaitTurn(id)
    const { kind } = await platform.deploymentFacts(id)
    await (kind === 'stop' ? stop : release)(work, phase)
    // A cancel comes too late for what serves, or has stopped.
    await CancellationScope.nonCancellable(() => platform.endTurn(id))
    return { status: 'succeeded' }
  },
  { onFailure: 'failed', onCancel: 'cancelled' },
)
