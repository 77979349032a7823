import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { LogFiles, LogSource } from '../log-files.ts'
import { publishText } from '../system/files.ts'
import { logLimits, openFiles } from '../system/log-files.ts'
import { hasMore } from '../system/log-names.ts'
import { environment, killProcesses, livingProcess, processesWith } from '../system/programs.ts'
import type { LogSettings } from './log-carrier.ts'
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
  const { path, most_files } = logSource(place, record, backlogMib)
  const file_bytes = logLimits(record.spec.log_cap_mib, backlogMib).fileBytes
  await publishText(place.logSettings, JSON.stringify({ path, file_bytes, most_files } satisfies LogSettings))
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

/** `look` returns the log source of a load balancer. */
export function makeAccessLogFiles(
  look: (id: string) => Promise<LogSource | null>,
  { folder, placeOf }: { folder: string; placeOf: (id: string) => Place },
): LogFiles {
  const paths = new Map<string, string>()
  /** By the engine's id. Reads names of folders only. */
  function pathOf(engineId: string): string | null {
    const known = paths.get(engineId)
    if (known !== undefined) return known
    for (const id of readdirSync(folder)) {
      const path = logPath(placeOf(id), engineId)
      if (!hasMore(path, 0)) continue
      paths.set(engineId, path)
      return path
    }
    return null
  }
  return {
    sourceOf: look,
    hasFull(engineId) {
      const path = pathOf(engineId)
      return path !== null && hasMore(path, 0)
    },
    isOverCap: ({ path, kept_files }) => hasMore(path, kept_files),
    open: openFiles,
  }
}
