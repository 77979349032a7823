import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { basename } from 'node:path'
import type { AttachedTo } from '../disks.ts'
import { EngineUnavailable, HostNotEquipped } from '../errors.ts'
import { DiskAttached, DiskInUse } from '../disk-errors.ts'
import { thaw } from '../linux/freezing.ts'
import {
  freeLoop,
  type InnerMount,
  innerMounts,
  type Loop,
  loopNumbered,
  loopsBelow,
  makeLoop,
  type Mount,
  mountInside,
  mountsOf,
  needsContainer,
  numberOf,
  unmount,
} from '../linux/mounts.ts'
import { userOf } from '../system/confinement.ts'
import { nullIfMissing } from '../system/files.ts'
import { processesWith, run, until } from '../system/programs.ts'
import {
  admits,
  endDaemons,
  findDaemon,
  needsDevice,
  offer,
  type ServingMachines,
  resizeNode,
  servedTo,
  startConfinedDaemon,
  startDaemon,
  stopDaemon,
  withhold,
} from './daemons.ts'
import { imageSize } from './images.ts'
import { hasStopped } from './failures.ts'
import type { Place } from './places.ts'

// image -> storage daemon -> plain file (FUSE) -> loop device -> file system on the host -> the same in a container.
// Each step checks what exists: the worker may have been killed after any of them.

// nouuid: a disk made from a snapshot has the same file system id.
const mountOptions = 'nouuid,nosuid,nodev,noatime'

/** What exists of an attached disk; all null or empty if it is detached. */
interface Standing {
  daemon: number | null
  loop: Loop | null
  mounts: Mount[]
}

async function standing(place: Place): Promise<Standing> {
  const [daemon, loops, mounts] = await Promise.all([findDaemon(place), loopsOf(place), mountsOf('self')])
  return {
    daemon,
    loop: loops.find(({ leaving }) => !leaving) ?? null,
    mounts: mounts.filter(({ path }) => path.startsWith(`${place.run}/`)),
  }
}

/** The loop devices of a disk: those of its file, and the recorded one, whose file may have no path any more. */
async function loopsOf(place: Place): Promise<Loop[]> {
  const [loops, recorded] = await Promise.all([loopsBelow(place.run), recordedLoop(place.loop)])
  return recorded && !loops.some(({ path }) => path === recorded.path) ? [...loops, recorded] : loops
}

export async function recordedLoop(file: string): Promise<Loop | null> {
  const known = await readFile(file, 'utf8').catch(nullIfMissing)
  return known ? loopNumbered(known) : null
}

export async function attachment(place: Place): Promise<'detached' | 'attached' | 'broken'> {
  const { daemon, loop, mounts } = await standing(place)
  if (daemon === null) return loop || mounts.length > 0 ? 'broken' : 'detached'
  return 'attached'
}

/** See Disks.attach. */
export async function attach(place: Place, to?: AttachedTo): Promise<void> {
  if (to) await needsContainer(to.pid)
  await earlierProgramsEnd(place)
  let lost: InnerMount[] = []
  const served = await servedTo(place)
  if (served === 'machine') throw new DiskAttached(place.id)
  if (served === null || (await hasStopped(place.mount))) {
    await endDaemons(place)
    lost = await clearAway(place)
    await startDaemon(place)
  }
  await mountOnHost(place)
  for (const { pid, path, read_only } of lost) {
    // If the container has ended, there is nothing to restore.
    await mountInside(place.mount, { pid, mount_path: path, read_only }).catch(() => {})
  }
  if (to) await mountOnce(place, to)
}

/** See Disks.plug. The machine mounts the file system, so the host does not. */
export async function plug(place: Place, how: ServingMachines | null, machineId: string): Promise<void> {
  if (!how) throw new HostNotEquipped('the helper of machines (KEELSON_HOST_GUEST)')
  await earlierProgramsEnd(place)
  const group = userOf(machineId)
  if ((await servedTo(place)) !== 'machine' || !(await admits(place, group))) {
    await endDaemons(place)
    await clearAway(place)
    await startConfinedDaemon(place, how, group)
  }
  await offer(place)
}

export const isMounted = async (place: Place): Promise<boolean> =>
  (await standing(place)).mounts.some(({ path }) => path === place.mount)

const programsEndWithinMs = 30_000

/** Waits for programs of a killed worker, such as `mount`: they could change what was just checked. */
async function earlierProgramsEnd(place: Place): Promise<void> {
  const stays = new Set(['qemu-storage-daemon', 'timeout'])
  const ended = async (): Promise<boolean> =>
    (await processesWith(`${place.run}/`)).every(({ args }) => stays.has(basename(args[0] ?? '')))
  await until(ended, programsEndWithinMs, 'A program of an earlier call does not end')
}

async function mountOnHost(place: Place): Promise<void> {
  const { loop, mounts } = await standing(place)
  const isThere = mounts.some(({ path, device }) => path === place.mount && device === loop?.device)
  if (!isThere) {
    await needsDevice('/dev/loop-control')
    const device = loop?.path ?? (await makeLoop(place.raw))
    const number = await numberOf({ path: device })
    if (number) await writeFile(place.loop, number)
    await mkdir(place.mount, { recursive: true })
    await run('mount', ['-t', 'xfs', '-o', mountOptions, device, place.mount])
  } else {
    await thaw(place.mount)
  }
  await growMounted(place)
}

async function mountOnce(place: Place, to: AttachedTo): Promise<void> {
  const { loop } = await standing(place)
  const isThere = (mount: Mount): boolean => mount.device === loop?.device && mount.path === to.mount_path
  const there = (await mountsOf(to.pid)).find(isThere)
  if (there?.read_only === (to.read_only ?? false)) return
  if (there) await unmount({ path: to.mount_path, pid: to.pid })
  await mountInside(place.mount, to)
}

/**
 * Removes what a killed daemon left, and returns where the disk was mounted. Its files can no longer be read or
 * written, so processes with open files lose nothing.
 */
async function clearAway(place: Place): Promise<InnerMount[]> {
  const { loop, mounts } = await standing(place)
  const inner = loop ? await innerMounts(loop.device) : []
  for (const mount of [...inner, ...mounts.filter(({ path }) => path === place.mount)])
    await unmount(mount, true)
  // Before the FUSE file is removed: without it, the loop device can no longer be matched to the disk, and would stay
  // forever.
  for (const left of await loopsOf(place)) await freeLoop(left, false)
  await unmount({ path: place.raw }, true)
  return inner
}

/** See Disks.detach. */
export async function detach(place: Place): Promise<void> {
  await earlierProgramsEnd(place)
  const { daemon, loop, mounts } = await standing(place)
  if (daemon === null) {
    await clearAway(place)
  } else {
    await thaw(place.mount) // unmounting a frozen file system would hang
    if (loop) for (const mount of await innerMounts(loop.device)) await unmount(mount)
    if (mounts.some(({ path }) => path === place.mount)) await unmountFromHost(place.mount)
    if (loop) await freeLoop(loop, true)
  }
  await stopDaemon(place)
  await rm(place.mount, { recursive: true, force: true })
  for (const file of [place.raw, place.loop]) await rm(file, { force: true })
}

async function unmountFromHost(path: string): Promise<void> {
  try {
    await unmount({ path })
  } catch (error) {
    if (error instanceof DiskInUse) throw new EngineUnavailable('The host still uses the disk', error)
    throw error
  }
}

// The kernel re-reads a FUSE file's size after a second.
const sizeSeenWithinMs = 10_000

/** Grows an attached disk and its file system to `bytes`. */
export async function growAttached(place: Place, bytes: number): Promise<void> {
  const isPlugged = (await servedTo(place)) === 'machine'
  if (((await imageSize(place.image)) ?? 0) < bytes) {
    // An NBD export keeps its size, so stop it first.
    if (isPlugged) await withhold(place)
    await resizeNode(place, bytes)
  }
  if (isPlugged) await offer(place)
  else await growMounted(place)
}

/** Grows the loop device and the file system to the image's size. */
async function growMounted(place: Place): Promise<void> {
  const bytes = (await imageSize(place.image)) ?? 0
  const { loop } = await standing(place)
  if (!loop) return
  const seen = async (): Promise<boolean> => (await stat(place.raw)).size === bytes
  await until(seen, sizeSeenWithinMs, 'The disk does not show its new size')
  await run('losetup', ['--set-capacity', loop.path])
  await run('xfs_growfs', [place.mount])
}
