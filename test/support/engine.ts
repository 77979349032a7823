import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import type { ContainerInfo, ContainerInspectInfo } from 'dockerode'
import { atEndOfFile } from './end-of-file.ts'
import { dockerOf, facts } from './stack.ts'

// Direct access to the Docker Engine, by labels, not through our database.

export const docker = dockerOf(facts().docker_host)

export const engine = {
  withLabel: (label: string, value: string): Promise<ContainerInfo[]> =>
    docker.listContainers({ all: true, filters: { label: [`${label}=${value}`] } }),

  /** The only container of this resource, beside the one that holds its network. Throws if there is none, or more than one. */
  async only(id: string): Promise<ContainerInspectInfo> {
    const all = await engine.withLabel('keelson.resource', id)
    const found = all.filter(({ Labels }) => Labels['keelson.kind'] !== 'pause')
    if (found.length !== 1) throw new Error(`${found.length} containers of ${id}`)
    return docker.getContainer(found[0]?.Id ?? '').inspect()
  },

  /** `docker kill`, without the platform. */
  kill: async (id: string): Promise<void> => docker.getContainer((await engine.only(id)).Id).kill(),

  /** `docker rm -f`, without the platform. */
  remove: async (id: string): Promise<void> =>
    docker.getContainer((await engine.only(id)).Id).remove({ force: true, v: true }),

  /**
   * Watches the engine's events for a tenant's containers. Open the watch before the request: `next` also resolves for
   * events in between.
   */
  async watch(tenantId: string): Promise<Moments> {
    const stream = (await docker.getEvents({
      filters: { type: ['container'], label: [`keelson.tenant=${tenantId}`] },
    })) as Readable
    atEndOfFile(() => stream.destroy())
    return new Moments(stream)
  },
}

type Action = 'create' | 'start' | 'die' | 'stop' | 'kill' | 'update' | 'destroy'

/** One tenant's engine events. */
export class Moments {
  readonly #seen: string[] = []
  #wake = Promise.withResolvers<void>()

  constructor(stream: Readable) {
    stream.on('error', () => {}) // the engine or the watch has ended
    createInterface({ input: stream }).on('line', (line) => {
      this.#seen.push((JSON.parse(line) as { Action: string }).Action)
      this.#wake.resolve()
      this.#wake = Promise.withResolvers()
    })
  }

  /** The number of these events so far. */
  count(action: Action): number {
    return this.#seen.filter((seen) => seen === action).length
  }

  /** Resolves once this event has happened since the watch was opened. */
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
