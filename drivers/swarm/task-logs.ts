import type Docker from 'dockerode'
import type { LogEntry, LogOptions } from '../containers.ts'
import { asking, statusOf } from '../docker/errors.ts'
import { readLogs } from '../docker/logs.ts'
import { InstanceNotFound } from '../errors.ts'
import type { DialMachine, TaskLogs } from '../swarms.ts'
import { engineOf } from './dial.ts'
import { serviceLabel } from './services.ts'

/** Reads the output of services from the engines of their machines. */
export const makeTaskLogs =
  (dial: DialMachine): TaskLogs =>
  (machineId, serviceId, options) =>
    asking(async () => {
      const docker = engineOf<Docker>(dial, machineId)
      const filters = { label: [`${serviceLabel}=${serviceId}`] }
      const containers = await docker.listContainers({ all: true, filters })
      if (containers.length === 0) throw new InstanceNotFound(serviceId)
      const oldestFirst = containers.toSorted((a, b) => a.Created - b.Created).map(({ Id }) => Id)
      return options.follow
        ? readLogs(docker, oldestFirst.at(-1) ?? '', options, { restarts: false })
        : linesOf(docker, oldestFirst, options)
    })

/** The tasks of a service run one after another, and so do their lines. */
async function* linesOf(docker: Docker, ids: string[], options: LogOptions): AsyncGenerator<LogEntry> {
  const { lines } = options
  if (lines === undefined) {
    for (const id of ids) yield* linesOfTask(docker, id, options)
    return
  }
  let kept: LogEntry[] = []
  for (const id of ids.toReversed()) {
    if (kept.length >= lines) break
    const earlier = await Array.fromAsync(linesOfTask(docker, id, { ...options, lines: lines - kept.length }))
    kept = [...earlier, ...kept]
  }
  yield* kept
}

/** None of a former task that Swarm has removed since it was listed. */
async function* linesOfTask(docker: Docker, id: string, options: LogOptions): AsyncGenerator<LogEntry> {
  try {
    yield* readLogs(docker, id, options)
  } catch (error) {
    if (statusOf(error) !== 404) throw error
  }
}
