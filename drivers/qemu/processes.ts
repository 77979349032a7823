import { mkdir, readFile, rm } from 'node:fs/promises'
import { EngineUnavailable } from '../errors.ts'
import { type Limits, makeGroups, removeGroups } from '../linux/groups.ts'
import {
  killProcesses,
  livingProcess,
  type Process,
  processesWith,
  run,
  stderrOf,
  until,
} from '../system/programs.ts'
import { confined } from '../system/confinement.ts'
import { qemu } from './boot.ts'
import type { MachinePlace } from './places.ts'
import type { Counters, Launched } from './records.ts'
import { kernelMib } from './arguments.ts'

// One QEMU per running machine. It outlives the worker and is identified by the id and paths in its arguments.

const isQemu = ({ args }: Process, place: MachinePlace): boolean =>
  args[0]?.endsWith(qemu) === true && args.includes(place.id) && args.includes(place.pidFile)

/** The pid of the machine's running QEMU; null if there is none. */
export async function findQemu(place: MachinePlace): Promise<number | null> {
  const pid = Number(await readFile(place.pidFile, 'utf8').catch(() => ''))
  const found = pid > 0 ? await livingProcess(pid) : null
  return found && isQemu(found, place) ? found.pid : null
}

// QEMU's use besides the machine's memory: code, translated code under TCG, device queues.
const ownMib = 256

/** QEMU's threads and its children, besides a thread for each of the machine's processors. */
const ownPids = 256

/**
 * For its children that open taps in the namespaces of VPCs, and for the folders above its files. With `-sandbox` it can
 * mount nothing with them.
 */
const rights = ['sys_admin', 'net_admin', 'dac_override']

// Each argument before `--` is a file through which the process enters a group; then follows the program.
const entering = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit 125; shift; done; shift; exec "$@"'

/** Makes or updates control groups, and returns arguments for `sh` that run a program in them. */
export async function inGroups(
  mark: string,
  group: string,
  limits: Limits,
  command: string[],
): Promise<string[]> {
  return ['-c', entering, 'sh', ...(await makeGroups(mark, group, limits)), '--', ...command]
}

/** The control group of the port helper. */
export const portsGroup = (id: string): string => `${id}-ports`

/** Starts QEMU, and returns when all its sockets exist. */
export async function startQemu(
  place: MachinePlace,
  mark: string,
  launched: Launched,
  args: string[],
): Promise<void> {
  await endQemu(place)
  await mkdir(place.run, { recursive: true, mode: 0o700 })
  const memory_mib = launched.memory_mib + kernelMib + ownMib
  const limits = { cpu_cores: launched.cpu_cores, memory_mib, pids: ownPids + Math.ceil(launched.cpu_cores) }
  const command = await inGroups(mark, place.id, limits, confined(rights, [qemu, ...args]))
  try {
    await run('sh', command)
  } catch (error) {
    throw new EngineUnavailable(`The machine could not be started: ${stderrOf(error).slice(0, 300)}`, error)
  }
}

const endsWithinMs = 60_000

export const awaitEnd = (place: MachinePlace, withinMs = endsWithinMs): Promise<void> =>
  until(async () => (await findQemu(place)) === null, withinMs, 'The machine’s process does not end')

/** Kills QEMU, including a start of a killed worker, and removes its sockets. */
export async function endQemu(place: MachinePlace): Promise<void> {
  const text = `${place.run}/`
  const left = await processesWith(text)
  await killProcesses(
    left.map(({ pid }) => pid),
    text,
  )
  for (const file of [place.pidFile, place.monitor, place.orders, place.agent, place.console])
    await rm(file, { force: true })
}

/** Removes everything of a machine but its files. */
export async function forgetProcess(place: MachinePlace, mark: string): Promise<void> {
  await endQemu(place)
  for (const group of [place.id, portsGroup(place.id)]) await removeGroups(mark, group)
  await rm(place.run, { recursive: true, force: true })
}

// The kernel's clock tick in /proc, the same on all architectures that Node supports.
const tickMs = 10

export async function cpuMsOf(pid: number): Promise<Counters['cpu_ms'] | null> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => null)
  if (stat === null) return null
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * tickMs
}
