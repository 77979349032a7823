import { mkdir, readdir, rmdir, stat, writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { HostNotEquipped } from '../errors.ts'
import { digest } from '../system/digest.ts'
import { nullIfMissing } from '../system/files.ts'
import { until } from '../system/programs.ts'
import { type IoLimits, numbersOf } from './block-devices.ts'

// Control groups for a driver's own processes: `keelson/<mark>/<id>`, in version 1 (a hierarchy per controller) or
// version 2.

const root = '/sys/fs/cgroup'
const periodUs = 100_000
// The scheduler treats a group like one process, however many it holds. The machines' groups weigh four processes per
// core, so that the host's other processes do not starve them.
const share = 4 * availableParallelism()
const mebibyte = 1024 ** 2

/** Marks the groups of the driver with this folder. */
export const markOf = (folder: string): string => digest(folder, 12)

export interface Limits {
  cpu_cores: number
  memory_mib: number
  /** Processes and threads; without it, as many as the host has. */
  pids?: number
  /** Without it, as much as the disk gives. Version 1 limits no writes that wait in memory. */
  io?: IoLimits | null
}

const isVersion2 = async (): Promise<boolean> =>
  stat(join(root, 'cgroup.controllers')).then(
    () => true,
    () => false,
  )

async function parents(mark: string): Promise<string[]> {
  return (await isVersion2())
    ? [join(root, 'keelson', mark)]
    : ['cpu', 'memory', 'pids', 'blkio'].map((controller) => join(root, controller, 'keelson', mark))
}

/** Makes the groups, or updates their limits. Returns the files through which a process enters them. */
export async function makeGroups(mark: string, id: string, limits: Limits): Promise<string[]> {
  const quota = Math.round(limits.cpu_cores * periodUs)
  const bytes = String(limits.memory_mib * mebibyte)
  const { pids = 'max', io = null } = limits
  try {
    const entries: string[] = []
    for (const parent of await parents(mark)) {
      const group = join(parent, id)
      await mkdir(group, { recursive: true })
      for (const path of [dirname(parent), parent]) await setShare(path)
      entries.push(join(group, 'cgroup.procs'))
      if (await isVersion2()) {
        for (const path of [root, join(root, 'keelson'), parent])
          await writeFile(join(path, 'cgroup.subtree_control'), '+cpu +memory +pids +io')
        for (const path of [dirname(parent), parent])
          await writeFile(join(path, 'cpu.weight'), String(Math.min(10_000, 100 * share)))
        await writeFile(join(group, 'cpu.max'), `${quota} ${periodUs}`)
        await writeFile(join(group, 'memory.max'), bytes)
        await writeFile(join(group, 'pids.max'), String(pids))
        if (io) await writeFile(join(group, 'io.max'), await ioLine(io))
      } else if (parent.startsWith(join(root, 'blkio/'))) {
        if (io) await limitIo(group, io)
      } else if (parent.startsWith(join(root, 'cpu/'))) {
        await writeFile(join(group, 'cpu.cfs_quota_us'), String(quota))
      } else if (parent.startsWith(join(root, 'pids/'))) {
        await writeFile(join(group, 'pids.max'), String(pids))
      } else {
        await writeFile(join(group, 'memory.limit_in_bytes'), bytes)
      }
    }
    return entries
  } catch (error) {
    throw new HostNotEquipped('writable control groups', error)
  }
}

async function ioLine({ disk, bytes, operations }: IoLimits): Promise<string> {
  const each = ['r', 'w'].flatMap((way) => [`${way}bps=${bytes}`, `${way}iops=${operations}`])
  return [await numbersOf(disk), ...each].join(' ')
}

async function limitIo(group: string, { disk, bytes, operations }: IoLimits): Promise<void> {
  const numbers = await numbersOf(disk)
  for (const way of ['read', 'write']) {
    await writeFile(join(group, `blkio.throttle.${way}_bps_device`), `${numbers} ${bytes}`)
    await writeFile(join(group, `blkio.throttle.${way}_iops_device`), `${numbers} ${operations}`)
  }
}

async function setShare(group: string): Promise<void> {
  if (group.startsWith(join(root, 'cpu/'))) await writeFile(join(group, 'cpu.shares'), String(1024 * share))
}

const emptyWithinMs = 10_000

/** Call after the group's processes have ended. Succeeds if there are no groups. */
export async function removeGroups(mark: string, id: string): Promise<void> {
  for (const parent of await parents(mark)) {
    // A process leaves its groups some time after it ends.
    const gone = async (): Promise<boolean> =>
      rmdir(join(parent, id)).then(
        () => true,
        (error: NodeJS.ErrnoException) => error.code === 'ENOENT',
      )
    await until(gone, emptyWithinMs, 'A control group does not become empty')
    for (const above of [parent, dirname(parent)]) await rmdir(above).catch(() => {}) // not empty: in use by others
  }
}

/** The ids of all groups. */
export async function listGroups(mark: string): Promise<string[]> {
  const found = await Promise.all(
    (await parents(mark)).map((parent) => readdir(parent, { withFileTypes: true }).catch(nullIfMissing)),
  )
  const names = found.flatMap((entries) => entries ?? []).filter((entry) => entry.isDirectory())
  return [...new Set(names.map(({ name }) => name))]
}
