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
import { qemu } from './boot.ts'
import type { MachinePlace } from './places.ts'
import type { Counters, Launched } from './records.ts'
import { kernelMib } from './arguments.ts'

// One QEMU for each machine that runs. It outlives the worker, and is known by its id and its files in its arguments.

const isQemu = ({ args }: Process, place: MachinePlace): boolean =>
  args[0]?.endsWith(qemu) === true && args.includes(place.id) && args.includes(place.pidFile)

/** The machine's process that lives; null when there is none. */
export async function findQemu(place: MachinePlace): Promise<number | null> {
  const pid = Number(await readFile(place.pidFile, 'utf8').catch(() => ''))
  const found = pid > 0 ? await livingProcess(pid) : null
  return found && isQemu(found, place) ? found.pid : null
}

// What QEMU takes beside the machine's memory: its own code, translated code under TCG, queues of devices.
const ownMib = 256

// Each word before `--` is a file by which a group is entered; then the program.
const entering = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit 125; shift; done; shift; exec "$@"'

/** What `sh` is given so that a program runs in control groups of ours, which are made or set anew. */
export async function inGroups(
  mark: string,
  group: string,
  limits: Limits,
  command: string[],
): Promise<string[]> {
  return ['-c', entering, 'sh', ...(await makeGroups(mark, group, limits)), '--', ...command]
}

/** For what carries its published ports. */
export const portsGroup = (id: string): string => `${id}-ports`

/** Starts it, and returns when all its sockets are there. */
export async function startQemu(
  place: MachinePlace,
  mark: string,
  launched: Launched,
  args: string[],
): Promise<void> {
  await endQemu(place)
  await mkdir(place.run, { recursive: true, mode: 0o700 })
  const memory_mib = launched.memory_mib + kernelMib + ownMib
  const limits = { cpu_cores: launched.cpu_cores, memory_mib }
  const command = await inGroups(mark, place.id, limits, [qemu, ...args])
  try {
    await run('sh', command)
  } catch (error) {
    throw new EngineUnavailable(`The machine could not be started: ${stderrOf(error).slice(0, 300)}`, error)
  }
}

const endsWithinMs = 60_000

export const awaitEnd = (place: MachinePlace, withinMs = endsWithinMs): Promise<void> =>
  until(async () => (await findQemu(place)) === null, withinMs, 'The machine’s process does not end')

/** Kills whatever there is of it, also what a killed worker was only about to start, and what it listened on. */
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

/** With nothing left on the machine but its files. */
export async function forgetProcess(place: MachinePlace, mark: string): Promise<void> {
  await endQemu(place)
  for (const group of [place.id, portsGroup(place.id)]) await removeGroups(mark, group)
  await rm(place.run, { recursive: true, force: true })
}

// The kernel's unit in /proc, the same on all architectures that Node knows.
const tickMs = 10

export async function cpuMsOf(pid: number): Promise<Counters['cpu_ms'] | null> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => null)
  if (stat === null) return null
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * tickMs
}
