import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { LogFiles, LogSource } from '../log-files.ts'
import { publishText } from '../system/files.ts'
import { logLimits, openFiles } from '../system/log-files.ts'
import { hasMore } from '../system/log-names.ts'
import { environment, killProcesses, livingProcess, processesWith, until } from '../system/programs.ts'
import { type LogSettings, readTallied } from './log-carrier.ts'
import type { Place } from './places.ts'
import type { LoadBalancerRecord } from './records.ts'

// Access logs in the format and under the file names of the Docker Engine's `json-file` driver, so that the same code
// archives them. A process of its own writes them (log-process.ts).

const logPath = (place: Place, engineId: string): string => join(place.logs, `${engineId}-json.log`)

export function logSource(place: Place, record: LoadBalancerRecord, backlogMib: number): LogSource {
  const { files, keptFiles } = logLimits(record.spec.log_cap_mib, backlogMib)
  return {
    id: place.id,
    engine_id: record.engine_id,
    engine_created_at: record.created_at,
    path: logPath(place, record.engine_id),
    kept_files: keptFiles,
    most_files: files - 1,
  }
}

/** Tells the reader where the log goes. */
export async function writeLogSettings(
  place: Place,
  record: LoadBalancerRecord,
  backlogMib: number,
): Promise<void> {
  const { fileBytes } = logLimits(record.spec.log_cap_mib, backlogMib)
  const settings: LogSettings = { ...logSource(place, record, backlogMib), file_bytes: fileBytes }
  await publishText(place.logSettings, JSON.stringify(settings))
}

const program = join(import.meta.dirname, 'log-process.ts')

/** The reader's last arguments: they tell the readers of a machine's hosts apart. */
const readersOf = async ({ folder, run }: { folder: string; run: string }): Promise<number[]> =>
  (await processesWith('--readers'))
    .filter(({ args }) => args.at(-1) === run && args.at(-2) === folder)
    .map(({ pid }) => pid)

/** The reader last seen of each `run` folder: to look through all processes takes long on a busy machine. */
const lastSeen = new Map<string, number>()

async function findReader(of: { folder: string; run: string }): Promise<number | null> {
  const known = await livingProcess(lastSeen.get(of.run) ?? 0)
  const isReader = known?.args.at(-1) === of.run && known.args.at(-2) === of.folder
  return isReader ? known.pid : ((await readersOf(of))[0] ?? null)
}

/** Starts the reader if it does not run. */
export async function startReader(of: { folder: string; run: string }): Promise<void> {
  const found = await findReader(of)
  if (found !== null) {
    lastSeen.set(of.run, found)
    return
  }
  // Detached: it outlives this worker, like the load balancers.
  const child = spawn(process.execPath, [program, '--readers', of.folder, of.run], {
    env: environment,
    detached: true,
    stdio: 'ignore',
  })
  child.unref()
  await once(child, 'spawn')
}

export async function endReader(of: { folder: string; run: string }): Promise<void> {
  await killProcesses(await readersOf(of), '--readers')
}

// The reader starts in a second, also on a busy machine.
const writtenWithinMs = 20_000

/** Waits until the reader has written everything that is in HAProxy's file now. Throws EngineUnavailable. */
export async function untilWritten(place: Place, of: { folder: string; run: string }): Promise<void> {
  if (!existsSync(place.log) || !existsSync(place.logSettings)) return // after a boot: it has no log yet
  await startReader(of)
  const { size } = await stat(place.log)
  const isWritten = (): boolean => (readTallied(place.tallies)?.position ?? 0) >= size
  await until(isWritten, writtenWithinMs, 'The access log is not written')
}

/** Paths of logs by the engine's id, of the load balancers that were found. */
export type LogPaths = Map<string, string>

export const notePath = (paths: LogPaths, place: Place, { engine_id }: LoadBalancerRecord): void =>
  void paths.set(engine_id, logPath(place, engine_id))

/** `look` returns the log source of a load balancer. */
export function makeAccessLogFiles(
  look: (id: string) => Promise<LogSource | null>,
  paths: LogPaths,
): LogFiles {
  return {
    sourceOf: look,
    hasFull(engineId) {
      const path = paths.get(engineId)
      return path !== undefined && hasMore(path, 0)
    },
    isOverCap: ({ path, kept_files }) => hasMore(path, kept_files),
    open: openFiles,
  }
}
