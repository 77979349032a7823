import type { Duplex } from 'node:stream'
import type {
  ContainerEngine,
  ContainerSample,
  FoundContainer,
  LogEntry,
  LogOptions,
  Terminal,
  TerminalSize,
} from './containers.ts'
import type { LogFiles } from './log-files.ts'
import type { FoundMachine, MachineEngine } from './machines.ts'

/** An instance as found in its engine, of any kind. */
export type FoundInstance = FoundContainer | FoundMachine

/** The calls that all engines share. See ContainerEngine and MachineEngine. */
export interface InstanceEngine {
  /** Gives up when the signal aborts, and throws its reason. */
  find(id: string, signal?: AbortSignal): Promise<FoundInstance | null>
  list(): Promise<FoundInstance[]>
  /** The ids of all, also of those of which only a part is left. Gives up as `find` does. */
  ids(signal?: AbortSignal): Promise<string[]>
  sample(found: FoundInstance[]): Promise<ContainerSample[]>
  remove(id: string, options?: { engineId?: string | undefined; discard?: boolean }): Promise<void>
  exec(id: string, command: string[], size: TerminalSize): Promise<Terminal>
  /** Runs a command, with its input and output as one stream. */
  pipe(id: string, command: string[]): Promise<Duplex>
  /** The serial console, if this kind has one. */
  console?(id: string): Promise<Duplex>
  logs(id: string, options: LogOptions): AsyncIterable<LogEntry>
  watch(onChange: (id: string | null) => void, signal: AbortSignal): Promise<void>
}

const isContainer = (found: FoundInstance): found is FoundContainer => found.kind === 'container'
export const isMachine = (found: FoundInstance): found is FoundMachine => found.kind !== 'container'

/**
 * Joins the engines of a host; each call goes to the engine that has the instance. `machines` is null on a host
 * without machines.
 */
export function joinEngines(containers: ContainerEngine, machines: MachineEngine | null): InstanceEngine {
  if (!machines) return containers
  /** Machines first: that lookup needs no round trip. */
  const engineOf = async (id: string): Promise<InstanceEngine> =>
    (await machines.find(id)) ? machines : containers
  return {
    find: async (id, signal) => (await machines.find(id)) ?? containers.find(id, signal),
    ids: async (signal) => (await Promise.all([containers.ids(signal), machines.ids()])).flat(),
    list: async () => (await Promise.all([containers.list(), machines.list()])).flat(),
    sample: async (found) =>
      (
        await Promise.all([
          containers.sample(found.filter(isContainer)),
          machines.sample(found.filter(isMachine)),
        ])
      ).flat(),
    remove: async (id, options) => (await engineOf(id)).remove(id, options),
    exec: async (id, command, size) => (await engineOf(id)).exec(id, command, size),
    pipe: async (id, command) => (await engineOf(id)).pipe(id, command),
    console: (id) => machines.console(id),
    async *logs(id, options) {
      yield* (await engineOf(id)).logs(id, options)
    },
    watch: async (onChange, signal) => {
      await Promise.all([containers.watch(onChange, signal), machines.watch(onChange, signal)])
    },
  }
}

/** Joins the log files of all engines. `others` is called each time, because they start later. */
export const joinLogFiles = (containers: LogFiles, others: () => LogFiles[]): LogFiles => ({
  ...containers,
  async sourceOf(id) {
    // Containers last: only that lookup needs a round trip.
    for (const files of others()) {
      const source = await files.sourceOf(id)
      if (source) return source
    }
    return containers.sourceOf(id)
  },
  hasFull: (engineId) => [containers, ...others()].some((files) => files.hasFull(engineId)),
})
