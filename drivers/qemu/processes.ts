import { chmod, mkdir, readFile, rm } from 'node:fs/promises'
import { EngineUnavailable } from '../errors.ts'
import type { IoLimits } from '../linux/block-devices.ts'
import { type Limits, makeGroups, removeGroups } from '../linux/groups.ts'
import {
  killProcesses,
  livingProcess,
  type Process,
  processesWith,
  stderrOf,
  until,
} from '../system/programs.ts'
import { confine, giveFile, type Handle } from '../system/confinement.ts'
import { qemu } from './boot.ts'
import type { MachinePlace } from './places.ts'
import type { Launched } from './records.ts'
import { kernelMib, nameOf } from './arguments.ts'

// One QEMU per running machine. It outlives the worker and is identified by its name, which contains a path of the machine.

const isQemu = ({ args }: Process, place: MachinePlace): boolean =>
  args[0]?.endsWith(qemu) === true && args.includes(nameOf(place))

/** The pid of the machine's running QEMU; null if there is none. */
export async function findQemu(place: MachinePlace): Promise<number | null> {
  const pid = Number(await readFile(place.pidFile, 'utf8').catch(() => ''))
  const found = pid > 0 ? await livingProcess(pid) : null
  return found && isQemu(found, place) ? found.pid : null
}

// QEMU's use besides the machine's memory: code, translated code under TCG, device queues.
const ownMib = 256

/** QEMU's threads, besides a thread for each of the machine's processors. */
const ownPids = 256

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

export interface QemuOrder {
  helper: string
  mark: string
  io: IoLimits | null
  launched: Launched
  args: string[]
  handles: Handle[]
  /** Files and folders that it reads, besides its run folder. */
  readable: string[]
  /** `/dev/kvm`, with hardware virtualization. */
  devices: string[]
}

/**
 * Starts QEMU, and returns when it takes commands. Its user owns its root disk and its seed, and nothing else: its sockets
 * are opened for it.
 */
export async function startQemu(place: MachinePlace, order: QemuOrder): Promise<void> {
  const { helper, mark, io, launched, args, handles, readable, devices } = order
  await endQemu(place)
  await mkdir(place.run, { recursive: true })
  await chmod(place.run, 0o711)
  await giveFile(place.user, place.root)
  if (readable.includes(place.seed)) await giveFile(place.user, place.seed)
  const memory_mib = launched.memory_mib + kernelMib + ownMib
  const limits = {
    cpu_cores: launched.cpu_cores,
    memory_mib,
    pids: ownPids + Math.ceil(launched.cpu_cores),
    io,
  }
  try {
    await confine(helper, `${place.run}/`, {
      program: qemu,
      arguments: args,
      user: place.user,
      group: place.user,
      writable: [place.root],
      readable: [place.run, ...readable],
      devices,
      root: place.view,
      control_groups: await makeGroups(mark, place.id, limits),
      handles,
      monitor: place.monitor,
      pid_file: place.pidFile,
    })
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
