import type Docker from 'dockerode'
import { lastLinesBytes, LastKept } from '../../lib/last-kept.ts'
import type { LogEntry, LogOptions } from '../containers.ts'
import { asking, statusOf } from '../docker/errors.ts'
import { readLogs } from '../docker/logs.ts'
import { InstanceNotFound } from '../errors.ts'
import type { DialMachine, TaskLogs } from '../swarms.ts'
import { engineOf } from './dial.ts'
import { serviceLabel } from './services.ts'

/** Reads the output of services from the engines of their machines. Of the last lines, at most so many bytes. */
export const makeTaskLogs =
  (dial: DialMachine, mostBytes = lastLinesBytes): TaskLogs =>
  (machineId, serviceId, options) =>
    asking(async () => {
      const docker = engineOf<Docker>(dial, machineId)
      const filters = { label: [`${serviceLabel}=${serviceId}`] }
      const containers = await docker.listContainers({ all: true, filters })
      if (containers.length === 0) throw new InstanceNotFound(serviceId)
      // The engine lists the newest first, and `Created` has seconds.
      const oldestFirst = containers
        .toReversed()
        .toSorted((a, b) => a.Created - b.Created)
        .map(({ Id }) => Id)
      return options.follow
        ? readLogs(docker, oldestFirst.at(-1) ?? '', options, { restarts: false })
        : linesOf(docker, oldestFirst, options, mostBytes)
    })

/** The tasks of a service run one after another, and so do their lines. */
async function* linesOf(
  docker: Docker,
  ids: string[],
  options: LogOptions,
  mostBytes: number,
): AsyncGenerator<LogEntry> {
  const { lines } = options
  if (lines === undefined) {
    for (const id of ids) yield* linesOfTask(docker, id, options)
    return
  }
  const newestFirst: LastKept<LogEntry>[] = []
  const room = { count: lines, bytes: mostBytes }
  for (const id of ids.toReversed()) {
    if (room.count <= 0) break
    const its = new LastKept<LogEntry>({ ...room }, ({ line }) => Buffer.byteLength(line))
    newestFirst.push(its)
    for await (const entry of linesOfTask(docker, id, { ...options, lines: room.count })) its.add(entry)
    if (its.hasDropped) break
    room.count -= its.count
    room.bytes -= its.bytes
  }
  for (const its of newestFirst.toReversed()) yield* its.taken()
}

/** None of a former task that Swarm has removed since it was listed. */
async function* linesOfTask(docker: Docker, id: string, options: LogOptions): AsyncGenerator<LogEntry> {
  try {
    yield* readLogs(docker, id, options)
  } catch (error) {
    if (statusOf(error) !== 404) throw error
  }
}
