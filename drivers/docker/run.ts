import type { IoLimits } from '../linux/block-devices.ts'
import { setTimeout as delay } from 'node:timers/promises'
import type Docker from 'dockerode'
import type { ContainerInspectInfo } from 'dockerode'
import type { ContainerSpec } from '../containers.ts'
import { statusOf, unless, until, wordsOf } from './errors.ts'
import { commandBegun } from './begun.ts'
import { commandFault } from './faults.ts'
import { type LocalImage, localImage } from './images.ts'
import { holdLayer, letGoLayer } from './layer-quota.ts'
import { ownTime } from './own-time.ts'
import { boundPorts } from './port-bindings.ts'
import { clashingPort } from './ports.ts'
import {
  createOptions,
  engineName,
  hasRun,
  isOurs,
  labels,
  restartPolicy,
  sizeLimits,
  startLimits,
  specHash,
} from './spec.ts'
import {
  hasNetwork,
  isJoined,
  joining,
  joins,
  lookAtPause,
  presentPause,
  removeAny,
  startPause,
  stopPause,
} from './pause.ts'
import { CommandFailed, EngineRefused, PortInUse } from '../errors.ts'
import { type HostPorts, portsMatch } from '../system/host-ports.ts'
import { livingProcess } from '../system/programs.ts'

/**
 * A command that ends within this time of its own has ended "at once"; each good start waits this long. The engine notices an
 * end within 10 ms and delays its answers until it has handled it (measured: 15 of 15 at 10 ms).
 */
const endsAtOnceMs = 50
const watchEveryMs = 10
// Only a command on a host that is hardly able to work needs longer.
const watchedAtMostMs = 10_000
// How long the engine takes to change a container's limits: the last part of the wait.
const updateMs = 20
// How late a busy engine may tell of an end: with 24 at once and other work on two cores, more than 10 s.
const endToldWithinMs = 60_000

// Each try avoids ports found taken. The limit matters on a host full of foreign listeners.
const placementTries = 10

// Creating a container takes some 20 ms, or a second or two on a busy engine.
const shownWithinMs = 5_000
const lookEveryMs = 20

/** One call of `run`. */
export interface Order {
  hostId: string
  spec: ContainerSpec
  configVars: Record<string, string>
  operationId: string
  logBacklogMib: number
  beforeRemoval: BeforeRemoval
  pauseImage: string
  /** The network of a container without NICs; null for the engine's default. */
  network: () => Promise<string | null>
  mostOpenFiles: number
  io: IoLimits | null
  quotas: boolean
  /** Called before a container with a `network` starts, with the pid of a process in its namespace. */
  onNetwork: (pid: number) => Promise<void>
}

/** Called before an ended container is removed, to save its output. If it throws, the container stays. */
export type BeforeRemoval = (id: string) => Promise<void>

/** Null if there is no such container, or if it is not this host's. */
export async function lookAt(
  docker: Docker,
  hostId: string,
  id: string,
  signal?: AbortSignal,
): Promise<ContainerInspectInfo | null> {
  const info = await unless([404], docker.getContainer(engineName(id)).inspect(until(signal)))
  return info && isOurs(hostId, [info.Name], info.Config.Labels) ? info : null
}

/** Creates and starts a container, or continues from what an earlier call left; see ContainerEngine.run. */
export async function runContainer(
  docker: Docker,
  hostPorts: HostPorts,
  order: Order,
): Promise<ContainerInspectInfo> {
  const avoid = new Set<string>()
  for (let tries = 0; tries < placementTries; tries++) {
    const there = order.spec.network ? await running(docker, order) : null
    if (there && isUp(there, order)) return there
    let pause: ContainerInspectInfo | null = null
    let container: Present | null = null
    try {
      if (order.spec.network && !(there && !isJoined(there))) {
        pause = await presentPause(docker, hostPorts.address, order, () =>
          hostPorts.place(order.spec.id, order.spec.ports, avoid),
        )
        await order.onNetwork(await startPause(docker, pause))
      }
      container = await present(docker, hostPorts, { ...order, pause }, avoid)
      const { id, info } = container
      if (info && (isUp(info, order) || isDoneJob(info, order))) return info
      await start(docker, container, order)
      return await watched(docker, id, order)
    } catch (error) {
      if (container) await withdraw(docker, container, order)
      if (pause) await withdrawPause(docker, pause, order)
      const port = clashingPort(error)
      if (port === undefined) throw error
      const kept = pause ?? container?.info
      if ((kept && hasRun(kept)) || order.spec.ports.some(({ host_port }) => host_port === port)) {
        throw new PortInUse(port, error)
      }
      for (const protocol of ['tcp', 'udp']) avoid.add(`${port}/${protocol}`)
    }
  }
  throw new PortInUse(null)
}

/**
 * The container if it is running. A container that has lost its network is stopped first: only a new start gives it
 * another.
 */
async function running(docker: Docker, { hostId, spec }: Order): Promise<ContainerInspectInfo | null> {
  const there = await lookAt(docker, hostId, spec.id)
  if (!there?.State.Running) return null
  if (!isJoined(there) || hasNetwork(there, await lookAtPause(docker, hostId, spec.id))) return there
  await stopForGood(docker, there.Id, lostGraceSec)
  return null
}

const lostGraceSec = 1

/** An order with the pause container to join. */
type Joining = Order & { pause: ContainerInspectInfo | null }

/** A container of the engine. `info` is null if this call has just made it: it is as it was ordered. */
interface Present {
  id: string
  info: ContainerInspectInfo | null
}

/** Returns the existing container if it matches the order, else makes a new one. */
async function present(
  docker: Docker,
  hostPorts: HostPorts,
  order: Joining,
  avoid: ReadonlySet<string>,
): Promise<Present> {
  const { spec, configVars, pause } = order
  // Asked while the engine tells of the container: each answer takes it some milliseconds. Not needed if that runs.
  const needed = Promise.all([localImage(docker, spec.image, spec.image_digest), networkOf(order)])
  needed.catch(() => {})
  let there = await lookAt(docker, order.hostId, spec.id)
  if (there?.State.Running) {
    there = await running(docker, order)
    if (there) return toPresent(there)
    there = await lookAt(docker, order.hostId, spec.id)
  }

  const [image, network] = await needed
  if (there) {
    const placed = pause
      ? joins(there, pause)
      : !isJoined(there) && portsMatch(spec.ports, boundPorts(there.HostConfig.PortBindings ?? {}))
    if (placed && there.Config.Labels[labels.spec] === specHash(spec, configVars, image.digest))
      return toPresent(there)
    await order.beforeRemoval(spec.id)
    await docker.getContainer(there.Id).remove({ force: true, v: true })
  }
  return create(docker, hostPorts, { ...order, image, mode: network }, avoid)
}

const toPresent = (info: ContainerInspectInfo): Present => ({ id: info.Id, info })

/** The network mode of an order's container. Makes its host's network if that is missing. */
const networkOf = async ({ pause, spec, network }: Joining): Promise<string | null> =>
  pause ? joining(spec.id) : spec.runner ? 'none' : network()

async function create(
  docker: Docker,
  hostPorts: HostPorts,
  order: Joining & { image: LocalImage; mode: string | null },
  avoid: ReadonlySet<string>,
): Promise<Present> {
  const { pause, mode: network } = order
  const ports = pause ? [] : await hostPorts.place(order.spec.id, order.spec.ports, avoid)
  const options = createOptions({ ...order, ports, joined: pause !== null, network }, hostPorts.address)
  try {
    const { id } = await docker.createContainer(options)
    return { id, info: null }
  } catch (error) {
    if (statusOf(error) === 409) return toPresent(await madeByAnother(docker, order, error))
    if (order.quotas && refusesQuotas(error))
      return create(docker, hostPorts, { ...order, quotas: false }, avoid)
    if (/no command specified/i.test(wordsOf(error))) {
      const message = 'The image has no command of its own, and none was given'
      throw new CommandFailed('command_not_started', message, null, error)
    }
    throw error
  }
}

/** An engine without the rights to set quotas, although its file system has them. */
const refusesQuotas = (error: unknown): boolean => /storage-opt/i.test(wordsOf(error))

/** Waits for the container that another call is making: the engine reserves the name before it shows the container. */
async function madeByAnother(
  docker: Docker,
  { hostId, spec: { id } }: Order,
  conflict: unknown,
): Promise<ContainerInspectInfo> {
  const deadline = Date.now() + shownWithinMs
  while (Date.now() < deadline) {
    const info = await unless([404], docker.getContainer(engineName(id)).inspect())
    if (info && isOurs(hostId, [info.Name], info.Config.Labels)) return info
    if (info) throw new EngineRefused('The container’s name is taken on its host', conflict)
    await delay(lookEveryMs)
  }
  throw conflict
}

/** Running, with nothing left for `watched` to do. */
const isUp = ({ State, HostConfig }: ContainerInspectInfo, { spec }: Order): boolean =>
  State.Running &&
  !State.Restarting &&
  HostConfig.RestartPolicy?.Name === restartPolicy(spec.restart_policy).RestartPolicy.Name &&
  HostConfig.NanoCpus === sizeLimits(spec).NanoCpus

/** A job of this operation that already ran, before a worker was killed. It must not run twice. */
const isDoneJob = (info: ContainerInspectInfo, { spec, operationId }: Order): boolean =>
  info.Config.Labels[labels.operation] === operationId &&
  spec.restart_policy !== 'always' &&
  hasRun(info) &&
  !info.State.Running &&
  (info.State.ExitCode === 0 || ranMs(info) > endsAtOnceMs)

const ranMs = ({ State }: ContainerInspectInfo): number =>
  Date.parse(State.FinishedAt) - Date.parse(State.StartedAt)

/** What the engine says if the process has ended in the middle of a call. */
const hasEnded =
  /no such process|(stopped|deleted) (process|container)|has stopped|not running|process (has )?already (finished|exited)/i

async function start(docker: Docker, { id, info }: Present, { hostId, spec }: Order): Promise<void> {
  const container = docker.getContainer(id)
  if (info && hasRun(info) && !info.State.Running) {
    await container.update(startLimits(spec))
    await letGoLayer(info)
  }
  try {
    try {
      await unless([304], container.start())
    } finally {
      if (info) await holdLayer(info, spec.disk_gib ?? null)
    }
  } catch (error) {
    const status = statusOf(error)
    // The command was so short that the engine could not apply all of its settings. `watched` sees how it ended.
    if (hasEnded.test(wordsOf(error))) return
    // Engine errors that the command causes: 400, or 404 although the container exists.
    const refused = status === 400 || (status === 404 && (await lookAt(docker, hostId, spec.id)) !== null)
    if (!refused) throw error
    throw new CommandFailed('command_not_started', 'The command could not be started', null, error)
  }
}

/**
 * Watches the first moments of a container's command, and sets its restart policy if it survives them. Set earlier, the
 * policy would make the engine restart a broken command repeatedly. Throws CommandFailed with the last output.
 */
async function watched(docker: Docker, engineId: string, { spec }: Order): Promise<ContainerInspectInfo> {
  const container = docker.getContainer(engineId)
  const started = await container.inspect()
  const init = started.State.Pid
  const limits = { ...sizeLimits(spec), ...restartPolicy(spec.restart_policy) }
  const watch = new AbortController()
  const { signal } = watch
  const ended = container.wait({ condition: 'not-running', abortSignal: signal }).catch(() => undefined)
  const over = new AbortController()
  void ended.then(() => over.abort())
  const endWithin = (ms: number): Promise<{ StatusCode: number } | undefined> =>
    Promise.race([ended, delay(ms, undefined, { signal }).catch(() => undefined)])

  let refusal: Error | null = null
  let end: { StatusCode: number } | undefined
  try {
    await commandBegun(init, over.signal)
    const own = ownTime(init)
    const deadline = performance.now() + watchedAtMostMs
    const endBefore = async (ms: number) => {
      for (let left = ms - own(); left > 0 && performance.now() < deadline; left = ms - own()) {
        const told = await endWithin(Math.min(left, watchEveryMs))
        if (told) return told
      }
      return undefined
    }
    end = await endBefore(endsAtOnceMs - updateMs)
    if (!end) {
      // The update is part of the wait. It fails if the container has just ended.
      refusal = await container.update(limits).then(
        () => null,
        (error: Error) => error,
      )
      end = await endBefore(endsAtOnceMs)
      // The engine could not change what has ended, and a busy one tells of the end late.
      const isOver = refusal && (hasEnded.test(wordsOf(refusal)) || !(await livingProcess(init)))
      if (isOver && !end) end = await endWithin(endToldWithinMs)
    }
  } finally {
    watch.abort()
  }
  // It runs as it was started, with its own limits: the engine need not be asked again.
  if (!end && !refusal && (await livingProcess(init)))
    return { ...started, HostConfig: { ...started.HostConfig, ...limits } }

  const info = await container.inspect() // a busy engine may report the end late
  const { Running, ExitCode, Pid } = info.State
  // The engine notes the restart policy before it refuses the rest, and may have started what has ended again by then.
  if (Running && refusal && Pid === init) throw refusal
  if (runsNow(info) && info.RestartCount === 0) return info
  const restarted = info.RestartCount > 0 ? await codeOfRestarted(container, info) : null
  const code = restarted ?? end?.StatusCode ?? ExitCode
  if (code === 0 && spec.restart_policy !== 'always') return info
  throw await commandFault(docker, info, code)
}

const runsNow = ({ State }: ContainerInspectInfo): boolean => State.Running && !State.Restarting

/**
 * The last exit code of a command that its policy has started again; null if it runs on. A start clears the code, and Docker 20.10
 * reads a wait's only afterwards, so it may answer 0.
 */
async function codeOfRestarted(container: Docker.Container, first: ContainerInspectInfo) {
  const deadline = performance.now() + shownWithinMs
  let info = first
  while (runsNow(info) && performance.now() < deadline) {
    await delay(lookEveryMs)
    info = await container.inspect()
  }
  return runsNow(info) ? null : info.State.ExitCode
}

/**
 * Cleans up after a failure. Removes a container that this operation made or that never ran. Stops one of an earlier
 * operation, because it holds the tenant's files.
 */
async function withdraw(docker: Docker, { id, info }: Present, order: Order): Promise<void> {
  const container = docker.getContainer(id)
  if (!info || info.Config.Labels[labels.operation] === order.operationId || !hasRun(info)) {
    await stopForGood(docker, id, 0)
    await order.beforeRemoval(order.spec.id)
    await unless([404, 409], container.remove({ force: true, v: true })) // 409: already being removed
  } else {
    await stopForGood(docker, id, 0)
  }
}

/** Removes the pause container if it has no container; else stops it until the next start. */
async function withdrawPause(
  docker: Docker,
  pause: ContainerInspectInfo,
  { hostId, spec }: Order,
): Promise<void> {
  if (await lookAt(docker, hostId, spec.id)) await stopPause(docker, hostId, spec.id)
  else await removeAny(docker, pause.Id)
}

/** Changes a container. The engine refuses to change one that has ended until it has noted the end. */
async function onceEndIsNoted(change: () => Promise<unknown>): Promise<void> {
  const deadline = performance.now() + endToldWithinMs
  for (;;)
    try {
      await change()
      return
    } catch (error) {
      if (!hasEnded.test(wordsOf(error)) || performance.now() > deadline) throw error
      await delay(lookEveryMs)
    }
}

/** Stops the container and keeps the engine from starting it again, even when the engine restarts. */
export async function stopForGood(docker: Docker, engineId: string, graceSec: number, signal?: AbortSignal) {
  const container = docker.getContainer(engineId)
  // With `on-failure`, an engine that starts would restart a container that was stopped by a signal.
  await onceEndIsNoted(() => unless([404], container.update(restartPolicy('never'))))
  const options = { t: graceSec, ...(signal ? { abortSignal: signal } : {}) }
  await unless([304, 404], container.stop(options))
}
