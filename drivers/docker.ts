import { statfs } from 'node:fs/promises'
import Docker from 'dockerode'
import type { ContainerEngine } from './containers.ts'
import { asEngineError, asking, statusOf, unless, wordsOf } from './docker-errors.ts'
import { watchContainers } from './docker-events.ts'
import { pullImage } from './docker-images.ts'
import { readLogs } from './docker-logs.ts'
import { look, runContainer, stopForGood } from './docker-run.ts'
import { isOurs, ours, restartPolicy, sizeLimits, toFound } from './docker-spec.ts'
import { EngineRefused, InstanceNotFound } from './errors.ts'
import { publishOnHost } from './published-ports.ts'

export interface DockerSettings {
  /** `unix:///path`, or `http(s)://` or `tcp://` with host and port. */
  dockerHost: string
  /** Host ports, both ends included, from which published ports are taken when the tenant names none. */
  portRange: readonly [from: number, to: number]
  /** The address of this machine on which ports are published. */
  publishOn: string
}

// Enough to keep the engine busy while answers travel; it works on few at a time.
const inspectsAtOnce = 8
const gibibyte = 1024 ** 3
const mebibyte = 1024 ** 2

/** Containers by a Docker Engine, 20.10 or later. */
export function makeDockerEngine({ dockerHost, portRange, publishOn }: DockerSettings): ContainerEngine {
  const docker = new Docker(connection(dockerHost))
  const network = publishOnHost(publishOn, portRange)

  return {
    pull: (image, options = {}) =>
      asking(async () => {
        const { digest } = await pullImage(docker, image, options)
        return { image_digest: digest }
      }, options.signal),

    run: (spec, configVars, operationId) =>
      asking(async () => toFound(await runContainer(docker, network, { spec, configVars, operationId }))),

    find: (id) =>
      asking(async () => {
        const info = await look(docker, id)
        return info && toFound(info)
      }),

    list: () =>
      asking(async () => {
        const summaries = await docker.listContainers({ all: true, filters: { label: ours } })
        const ids = summaries.filter(({ Names, Labels }) => isOurs(Names, Labels)).map(({ Id }) => Id)
        const found = await mapAtOnce(ids, inspectsAtOnce, (id) =>
          unless([404], docker.getContainer(id).inspect()),
        )
        return found.flatMap((info) => (info ? [toFound(info)] : []))
      }),

    stop: (id, graceSec, signal) =>
      asking(async () => {
        const info = await look(docker, id)
        if (info?.State.Running) await stopForGood(docker, info.Id, graceSec, signal)
      }, signal),

    resize: (id, size) =>
      asking(async () => {
        const info = await look(docker, id)
        if (!info) throw new InstanceNotFound(id)
        // A stopped container has no restart policy on the engine; the next start gives it one.
        const policy = info.State.Running ? restartPolicy(size.restart_policy) : {}
        try {
          await docker.getContainer(info.Id).update({ ...sizeLimits(size), ...policy })
        } catch (error) {
          if (!/device or resource busy/i.test(wordsOf(error))) throw error
          throw new EngineRefused('The container uses more memory than it would be left with', error)
        }
      }),

    remove: (id) =>
      asking(async () => {
        const info = await look(docker, id)
        if (!info) return
        const container = docker.getContainer(info.Id)
        try {
          await unless([404], container.remove({ force: true, v: true }))
        } catch (error) {
          if (statusOf(error) !== 409) throw error
          await unless([404], container.wait({ condition: 'removed' })) // another call removes it
        }
      }),

    async *logs(id, options) {
      try {
        const info = await look(docker, id)
        if (!info) throw new InstanceNotFound(id)
        yield* readLogs(docker, info.Id, options)
      } catch (error) {
        if (!options.signal?.aborted) throw asEngineError(error)
      }
    },

    watch: (onChange, signal) => watchContainers(docker, onChange, signal),

    info: () =>
      asking(async () => {
        const { ServerVersion, NCPU, MemTotal, DockerRootDir } = await docker.info()
        // In a container of its own the worker does not see the engine's folder, but sits on the same disk.
        const disk = await statfs(DockerRootDir).catch(() => statfs('/'))
        return {
          name: 'docker',
          version: ServerVersion,
          cpu_cores: NCPU,
          memory_mib: Math.floor(MemTotal / mebibyte),
          disk_gib: Math.floor((disk.blocks * disk.bsize) / gibibyte),
        }
      }),
  }
}

/**
 * No timeout of the client's own: a stop may take its grace, a pull minutes, a log as long as it is read.
 * No connection is kept either: one that the engine closed when it restarted would fail the next call. Not
 * by an agent: dockerode's debug output formats all options of each call, and an agent took 0.2 s a start.
 */
function connection(dockerHost: string): Docker.DockerOptions {
  const url = new URL(dockerHost)
  const { hostname: host, port } = url
  const headers = { Connection: 'close' }
  // `host` is said aloud, since dockerode fills what is left out from DOCKER_HOST.
  if (url.protocol === 'unix:') return { socketPath: url.pathname, host: undefined, headers }
  if (url.protocol === 'https:') return { host, port: port || 2376, protocol: 'https', headers }
  return { host, port: port || 2375, protocol: 'http', headers }
}

async function mapAtOnce<T, R>(items: T[], width: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  const entries = items.entries()
  const lane = async (): Promise<void> => {
    for (const [index, item] of entries) results[index] = await work(item)
  }
  await Promise.all(Array.from({ length: width }, lane))
  return results
}
