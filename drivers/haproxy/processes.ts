import { randomUUID } from 'node:crypto'
import { chmod, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { EngineUnavailable, HostNotEquipped } from '../errors.ts'
import { makeGroups, removeGroups } from '../linux/groups.ts'
import { namespaceFile } from '../linux/commands.ts'
import {
  killProcesses,
  livingProcess,
  type Process,
  processesWith,
  run,
  stderrOf,
  until,
} from '../system/programs.ts'
import { nullIfMissing, publishText } from '../system/files.ts'
import type { ProxyUser } from './document.ts'
import { headLine } from './log-carrier.ts'
import type { Place } from './places.ts'
import { answers, ask, askMaster, masterAnswers } from './runtime.ts'

// One HAProxy per load balancer: a master and its worker. It outlives the host's worker, and is identified by its
// configuration and pid file in its arguments.

export const haproxy = 'haproxy'

const isHaproxy = ({ args }: Process, place: Place): boolean =>
  args[0]?.endsWith(haproxy) === true && args.includes(place.config) && args.includes(place.pidFile)

// A reload empties the pid file, and writes it some milliseconds later.
const reloadsWithin = { ms: 1_000, lookEveryMs: 20 }

/** The pid of the running master; null if there is none. */
export async function findMaster(place: Place): Promise<number | null> {
  const deadline = Date.now() + reloadsWithin.ms
  for (;;) {
    const pid = Number(await readFile(place.pidFile, 'utf8').catch(() => ''))
    const found = pid > 0 ? await livingProcess(pid) : null
    if (found && isHaproxy(found, place)) return found.pid
    const others = await processesWith(place.pidFile)
    if (Date.now() > deadline || !others.some((one) => isHaproxy(one, place))) return null
    await delay(reloadsWithin.lookEveryMs)
  }
}

// One core serves; a reload reads the configuration on another.
const limits = { cpu_cores: 2, memory_mib: 512 }

// $1: the log. The process gets it as descriptor 3, at its end: HAProxy itself does not append, but goes on from there, with
// all its workers, and nobody else may write. The empty line ends what a killed process has begun. Each argument before
// `--` is a file through which the process enters a group; then follows the program.
const entering = `exec 3>>"$1" && echo >&3 || exit; shift
while [ "$1" != -- ]; do echo $$ >"$1" || exit 125; shift; done; shift
exec "$@"`

const startsWithinMs = 30_000

/** What a start says of a port that another program uses: `1.2.3.4:80`. */
export class AddressInUse extends Error {
  readonly port: number
  constructor(port: number) {
    super(`the port ${port} is in use`)
    this.port = port
  }
}

/** Starts the process from its configuration. Throws AddressInUse, HostNotEquipped, EngineUnavailable. */
export async function startProcess(
  place: Place,
  { mark, namespace }: { mark: string; namespace: string },
): Promise<void> {
  await endProcesses(place)
  await makeRun(place)
  const groups = await makeGroups(mark, place.id, limits)
  const program = [
    haproxy,
    '-W',
    '-D',
    '-f',
    place.config,
    '-p',
    place.pidFile,
    '-S',
    `${place.master},mode,600`,
  ]
  const command = [`--net=${namespaceFile(namespace)}`, ...program]
  try {
    await run('sh', ['-c', entering, 'sh', place.log, ...groups, '--', 'nsenter', ...command], {
      signal: AbortSignal.timeout(startsWithinMs),
    })
    await until(() => answers(place), startsWithinMs, 'no answer')
    await until(() => masterAnswers(place), startsWithinMs, 'no answer of the master')
  } catch (error) {
    await endProcesses(place)
    if (error instanceof HostNotEquipped) throw error
    const said = stderrOf(error)
    const [, port] = /Address already in use\)? (?:for|\[)[^\n\]]*?:(\d+)\]?/.exec(said) ?? []
    if (port) throw new AddressInUse(Number(port))
    throw new EngineUnavailable(`The load balancer could not be started: ${said.slice(0, 300)}`, error)
  }
}

async function makeRun(place: Place): Promise<void> {
  await mkdir(place.run, { recursive: true })
  await chmod(place.run, 0o700)
  await mkdir(place.root, { recursive: true })
  await chmod(place.root, 0o755)
  await writeFile(place.servers, '') // a new start knows nothing of earlier checks
  if (!(await stat(place.log).catch(nullIfMissing))) await publishText(place.log, headLine(randomUUID()))
}

/** The version of the configuration that the process runs; null if it does not answer. */
export async function runningVersion(place: Place): Promise<string | null> {
  const said = await ask(place, ['show info']).catch(() => '')
  return /^description: keelson:(\w+)/im.exec(said)?.[1] ?? null
}

// Reading a thousand routes takes a second.
const reloadsWithinMs = 20_000

// A worker that is busy handles its master's signal some milliseconds later.
const stopsListeningWithinMs = 5_000

/**
 * Brings the process to the configuration in its file: no new connection gets the former one. Connections go on; the
 * former worker ends with its last one. `master` keeps its pid. Throws EngineUnavailable, at once if the process is
 * killed: its next start waits for this.
 */
export async function reload(place: Place, master: number, version: string): Promise<void> {
  await askMaster(place, 'reload')
  const isThere = async (): Promise<boolean> => {
    const found = await livingProcess(master)
    // It executes itself anew, and has no arguments for a moment.
    return found !== null && (found.args.every((arg) => arg === '') || isHaproxy(found, place))
  }
  await until(
    async () => {
      if ((await runningVersion(place)) === version) return true
      if (await isThere()) return false
      throw new EngineUnavailable('The load balancer ended while it loaded its new configuration')
    },
    reloadsWithinMs,
    'The load balancer did not load its new configuration',
  )
  const deadline = Date.now() + stopsListeningWithinMs
  while (!(await formerAreStopping(place).catch(() => false))) {
    if (Date.now() > deadline || !(await isThere())) return // the new configuration serves
    await delay(reloadsWithin.lookEveryMs)
  }
}

/** Whether all former workers have closed the ports, which they share with the new one. Throws EngineUnavailable. */
async function formerAreStopping(place: Place): Promise<boolean> {
  const [, former = ''] = (await askMaster(place, 'show proc')).split('# old workers')
  const workers = [...former.matchAll(/^(\d+)\s+worker/gm)]
  const said = await Promise.all(workers.map(([, pid]) => askMaster(place, `@!${pid} show info`)))
  return !said.some((info) => /^Stopping: 0$/m.test(info)) // one that has ended says nothing of it
}

/** Kills the process with all its workers, and what a killed start has left. */
export async function endProcesses(place: Place): Promise<void> {
  const text = `${place.run}/` // in the arguments of all of them: the pid file
  const left = await processesWith(text)
  await killProcesses(
    left.map(({ pid }) => pid),
    text,
  )
  for (const file of [place.pidFile, place.admin, place.master]) await rm(file, { force: true })
}

/** Removes everything of the process. */
export async function forgetProcess(place: Place, mark: string): Promise<void> {
  await endProcesses(place)
  await removeGroups(mark, place.id)
  // Tried again if the log's reader makes a file meanwhile.
  await rm(place.run, { recursive: true, force: true, maxRetries: 10 })
}

/** The system user for workers: that of the package, else nobody. */
export async function findUser(): Promise<ProxyUser> {
  const users = await readFile('/etc/passwd', 'utf8')
  const groups = await readFile('/etc/group', 'utf8')
  if (hasEntry(users, haproxy) && hasEntry(groups, haproxy)) return { user: haproxy, group: haproxy }
  return { user: 'nobody', group: hasEntry(groups, 'nogroup') ? 'nogroup' : 'nobody' }
}

const hasEntry = (text: string, name: string): boolean =>
  text.split('\n').some((line) => line.startsWith(`${name}:`))
