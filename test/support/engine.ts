import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import type { ContainerInfo, ContainerInspectInfo } from 'dockerode'
import { dockerOf, facts } from './stack.ts'

// The Docker Engine itself, beside the platform: by labels, so that no bookkeeping of ours hides anything.

export const docker = dockerOf(facts().docker_host)

export const engine = {
  withLabel: (label: string, value: string): Promise<ContainerInfo[]> =>
    docker.listContainers({ all: true, filters: { label: [`${label}=${value}`] } }),

  /** The one container of this resource. Throws when there is none, or more. */
  async only(id: string): Promise<ContainerInspectInfo> {
    const found = await engine.withLabel('keelson.resource', id)
    if (found.length !== 1) throw new Error(`${found.length} containers of ${id}`)
    return docker.getContainer(found[0]?.Id ?? '').inspect()
  },

  /** `docker kill`, behind the platform's back. */
  kill: async (id: string): Promise<void> => docker.getContainer((await engine.only(id)).Id).kill(),

  /** `docker rm -f`, behind the platform's back. */
  remove: async (id: string): Promise<void> =>
    docker.getContainer((await engine.only(id)).Id).remove({ force: true, v: true }),

  /**
   * Listens to what the engine does with a tenant's containers. To be opened before what is to be seen is
   * asked for: `next` also resolves for what happened in between.
   */
  async watch(tenantId: string): Promise<Moments> {
    const stream = (await docker.getEvents({
      filters: { type: ['container'], label: [`keelson.tenant=${tenantId}`] },
    })) as Readable
    watches.add(stream)
    return new Moments(stream)
  },

  /** At the end of a file of tests. */
  endWatches(): void {
    for (const stream of watches) stream.destroy()
    watches.clear()
  },
}

const watches = new Set<Readable>()

type Action = 'create' | 'start' | 'die' | 'stop' | 'kill' | 'update' | 'destroy'

/** The engine's events, one tenant's. */
export class Moments {
  readonly #seen: string[] = []
  #wake = Promise.withResolvers<void>()

  constructor(stream: Readable) {
    stream.on('error', () => {}) // the engine ends, or the watch
    createInterface({ input: stream }).on('line', (line) => {
      this.#seen.push((JSON.parse(line) as { Action: string }).Action)
      this.#wake.resolve()
      this.#wake = Promise.withResolvers()
    })
  }

  /** How often it has happened. */
  count(action: Action): number {
    return this.#seen.filter((seen) => seen === action).length
  }

  /** Resolves once it has happened. */
  async next(action: Action, withinMs = 120_000): Promise<void> {
    const late = Promise.withResolvers<never>()
    const timer = setTimeout(() => late.reject(new Error(`no ${action} in ${withinMs} ms`)), withinMs)
    try {
      while (!this.#seen.includes(action)) await Promise.race([this.#wake.promise, late.promise])
    } finally {
      clearTimeout(timer)
    }
  }
}
