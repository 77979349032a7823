import { statfs } from 'node:fs/promises'
import Docker from 'dockerode'
import { mapAtOnce } from '../../lib/queue.ts'
import type { ContainerEngine, EngineDescription, FoundContainer } from '../containers.ts'
import { connection } from './connection.ts'
import { asEngineError, asking, unless, until, wordsOf } from './errors.ts'
import { watchContainers } from './events.ts'
import { openTerminal } from './exec.ts'
import type { CrashLoops } from './crash-loops.ts'
import type { HostImages } from './host-images.ts'
import type { HostLayers } from './host-layers.ts'
import { pullImage } from './images.ts'
import { holdLayer, isLayerFull } from './layer-quota.ts'
import { readLogs } from './logs.ts'
import { limitApplications } from './machine-limits.ts'
import { isJoined, lookAtPause, pair, removeAny, stopPause, toFoundAlone, toFoundWith } from './pause.ts'
import { type BeforeRemoval, lookAt, runContainer, stopForGood } from './run.ts'
import { openPipe } from './pipe.ts'
import { portsGiven } from './ports.ts'
import { makeSampler } from './samples.ts'
import { isRestarted, labels, ours, restartPolicy, sizeLimits } from './spec.ts'
import { EngineRefused, InstanceNotFound } from '../errors.ts'
import { diskBelow, type IoLimits } from '../linux/block-devices.ts'
import type { HostPorts } from '../system/host-ports.ts'

export interface DockerSettings {
  /** The host that owns these containers. */
  hostId: string
  /** `unix:///path`, or `http(s)://` or `tcp://` with host and port. */
  dockerHost: string
  /** The host ports that containers can publish. */
  ports: HostPorts
  /** How images are pulled; by default without limits. */
  images?: Pick<HostImages, 'pull'>
  /** What containers may write outside their disks; by default as much as there is room. */
  layers?: Omit<HostLayers, 'look'>
  /** Restarts of containers that end again and again; by default the engine's alone. */
  loops?: Omit<CrashLoops, 'restart'>
  /** Output beyond a container's cap that may wait on the host for archiving. 0: the engine drops it at once. */
  logBacklogMib?: number
  beforeRemoval?: BeforeRemoval
  /** An image with `sleep`, for pause containers. */
  pauseImage?: string
  /** The network of containers without NICs; null for the engine's default. */
  network?: () => Promise<string | null>
  /** The most open files that the engine can give a process. */
  mostOpenFiles?: number
  /** Each container's share of the disk with the engine's files; null: unlimited. */
  io?: IoLimits | null
  /** Whether the engine's quotas hold layers to `disk_gib`; see `hasLayerQuotas`. */
  quotas?: boolean
  /** Whether deploy servers may have machines here, which are containers with more rights. */
  machines?: boolean
}

// Enough to keep the engine busy during round trips; it works on few requests at a time.
const inspectsAtOnce = 8
const samplesAtOnce = 8
const gibibyte = 1024 ** 3
const mebibyte = 1024 ** 2

/** Containers on a Docker Engine, 20.10 or later. */
export function makeDockerEngine({
  hostId,
  dockerHost,
  ports,
  images,
  layers,
  loops,
  logBacklogMib = 0,
  beforeRemoval = async () => {},
  pauseImage = 'busybox:latest',
  network = async () => null,
  mostOpenFiles = 1024,
  io = null,
  quotas = false,
  machines = false,
}: DockerSettings): ContainerEngine {
  const docker = new Docker(connection(dockerHost))
  const look = (id: string, signal?: AbortSignal) => lookAt(docker, hostId, id, signal)
  ports.addEngine((exceptId) => asking(() => portsGiven(docker, exceptId)))
  const sampler = makeSampler()
  const withEnding = (one: FoundContainer): FoundContainer =>
    one.state === 'exited' && layers?.isFull(one.id) ? { ...one, ended_by: 'disk_full' } : one
  const pauseOf = ({ Config }: Docker.ContainerInspectInfo, signal?: AbortSignal) =>
    lookAtPause(docker, hostId, Config.Labels[labels.resource] ?? '', signal)
  const found = async (info: Docker.ContainerInspectInfo, signal?: AbortSignal): Promise<FoundContainer> =>
    withEnding({
      ...toFoundWith(info, isJoined(info) ? await pauseOf(info, signal) : null),
      ...loops?.see(info),
      ...((await isLayerFull(info)) ? { layer_full: true } : {}),
    })

  return {
    pull: (image, options = {}) =>
      asking(async () => {
        const { digest } = await (images ? images.pull(image, options) : pullImage(docker, image, options))
        return { image_digest: digest }
      }, options.signal),

    run: (spec, configVars, operationId, onNetwork = async () => {}) =>
      asking(async () => {
        if (spec.machine && !machines)
          throw new EngineRefused('The host does not run machines of deploy servers as containers')
        if (spec.runner && (spec.machine || spec.network || spec.ports.length))
          throw new EngineRefused('A runner has no network')
        const order = {
          hostId,
          spec,
          configVars,
          operationId,
          logBacklogMib,
          beforeRemoval,
          pauseImage,
          network,
          mostOpenFiles,
          io,
          quotas,
          onNetwork,
        }
        await loops?.leave(spec.id)
        // At once, so that recording the limit delays no start.
        const recorded = layers?.start(spec.id, spec.disk_gib ?? null)
        const [info] = await Promise.all([runContainer(docker, ports, order), recorded])
        return found(info)
      }),

    find: (id, signal) =>
      asking(async () => {
        const info = await look(id, signal)
        if (info) return found(info, signal)
        const alone = await lookAtPause(docker, hostId, id, signal)
        return alone && toFoundAlone(alone)
      }, signal),

    ids: (signal) =>
      asking(async () => {
        const all = await docker.listContainers({
          all: true,
          filters: { label: ours(hostId) },
          ...until(signal),
        })
        return [...new Set(all.map(({ Labels }) => Labels[labels.resource] ?? ''))].filter(Boolean)
      }, signal),

    list: () =>
      asking(async () => {
        const summaries = await docker.listContainers({ all: true, filters: { label: ours(hostId) } })
        const all = await mapAtOnce(summaries, inspectsAtOnce, ({ Id }) =>
          unless([404], docker.getContainer(Id).inspect()),
        )
        return pair(
          hostId,
          all.flatMap((info) => info ?? []),
        ).map(withEnding)
      }),

    sample: async (containers) => {
      sampler.keep(containers)
      const samples = await mapAtOnce(containers, samplesAtOnce, sampler.sampleOf)
      return samples.filter((sample) => sample !== null)
    },

    stop: (id, graceSec, signal) =>
      asking(async () => {
        await loops?.leave(id)
        const info = await look(id)
        // One that has ended by itself may still have the policy by which the engine would start it when that restarts.
        if (info && (info.State.Running || isRestarted(info)))
          await stopForGood(docker, info.Id, graceSec, signal)
        await stopPause(docker, hostId, id)
      }, signal),

    resize: (id, size) =>
      asking(async () => {
        const info = await look(id)
        if (!info) throw new InstanceNotFound(id)
        // A stopped container has no restart policy on the engine; the next start sets it.
        const isByEngine = !(await loops?.resize(id, size.restart_policy)) && info.State.Running
        const policy = isByEngine ? restartPolicy(size.restart_policy) : {}
        const container = docker.getContainer(info.Id)
        try {
          await container.update({ ...sizeLimits(size), ...policy })
        } catch (error) {
          if (!/device or resource busy/i.test(wordsOf(error))) throw error
          throw new EngineRefused('The container uses more memory than the new limit', error)
        }
        try {
          await limitApplications(docker, info)
        } catch (error) {
          const { NanoCpus, Memory, MemorySwap } = info.HostConfig
          await container.update({ NanoCpus, Memory, MemorySwap })
          throw error
        }
        await holdLayer(info, size.disk_gib ?? null)
        await layers?.resize(id, size.disk_gib ?? null)
      }),

    remove: (id, { engineId, discard = false } = {}) =>
      asking(async () => {
        const [info, pause] = [await look(id), await lookAtPause(docker, hostId, id)]
        if (engineId !== undefined && engineId !== (info ?? pause)?.Id) return
        await loops?.leave(id)
        if (info && !discard) {
          await stopForGood(docker, info.Id, 0)
          await beforeRemoval(id)
        }
        for (const one of [info, pause]) if (one) await removeAny(docker, one.Id)
        await layers?.forget(id)
      }),

    exec: (id, command, size) =>
      asking(async () => {
        const info = await look(id)
        if (!info) throw new InstanceNotFound(id)
        return openTerminal(docker, { id, engineId: info.Id }, command, size)
      }),

    pipe: (id, command) =>
      asking(async () => {
        const info = await look(id)
        if (!info) throw new InstanceNotFound(id)
        return openPipe(docker, { id, engineId: info.Id }, command)
      }),

    async *logs(id, options) {
      try {
        const info = await look(id)
        if (!info) throw new InstanceNotFound(id)
        yield* readLogs(docker, info.Id, options)
      } catch (error) {
        if (!options.signal?.aborted) throw asEngineError(error)
      }
    },

    watch: (onChange, signal) => watchContainers(docker, hostId, onChange, signal),
  }
}

/** The engine's version and its host's resources. Throws EngineUnavailable. */
export const describeDocker = (dockerHost: string): Promise<EngineDescription> =>
  asking(async () => {
    const { ServerVersion, NCPU, MemTotal, DockerRootDir } = await new Docker(connection(dockerHost)).info()
    // A worker in a container does not see the engine's folder, but is on the same disk.
    const disk = await statfs(DockerRootDir).catch(() => statfs('/'))
    return {
      name: 'docker',
      version: ServerVersion,
      cpu_cores: NCPU,
      memory_mib: Math.floor(MemTotal / mebibyte),
      disk_gib: Math.floor((disk.blocks * disk.bsize) / gibibyte),
    }
  })

/** The disk with the engine's files, as `/dev/…`; null if it is not one disk that this process sees. */
export const diskOfDocker = (dockerHost: string): Promise<string | null> =>
  asking(async () => diskBelow((await new Docker(connection(dockerHost)).info()).DockerRootDir))
