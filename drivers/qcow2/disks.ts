import { mkdir, readdir, rename, rm, statfs } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { makeNamedQueues } from '../../lib/queue.ts'
import type { Disks, DiskTraces, DiskTransfers, FoundDisk, FoundSnapshot, Space, Watching } from '../disks.ts'
import { EngineRefused, HostDiskFull } from '../errors.ts'
import { DiskAttached, DiskMigrating, DiskNotFound, SnapshotNotFound } from '../disk-errors.ts'
import { whileFrozen } from '../linux/freezing.ts'
import { loopsBelow, mountsOf } from '../linux/mounts.ts'
import { giveFile } from '../system/confinement.ts'
import { nullIfMissing, publish } from '../system/files.ts'
import { processesWith, run } from '../system/programs.ts'
import { attach, attachment, detach, growAttached, isMounted, plug, recordedLoop } from './attach.ts'
import { copyOf, type ServingMachines } from './daemons.ts'
import { watchWrites } from './failures.ts'
import {
  allocatedBytes,
  beginWriting,
  copyImage,
  discardUnfinished,
  findSnapshot,
  formatImage,
  imageNode,
  imageSize,
  loneImageSize,
  snapshotsOf,
} from './images.ts'
import { makePlaces, type Place } from './places.ts'
import { findServing, pull, serve, type ServeOn, stopServing } from './transfers.ts'

export interface Qcow2Settings {
  /** The folder for the disks. */
  folder: string
  /** For sockets, pid files and mount points: a short path, preferably one that is emptied at boot (`/run/…`). */
  run: string
  serveOn: ServeOn
  /** Without it, no machines are served. */
  machines?: ServingMachines | null
}

const gibibyte = 1024 ** 3

/** Disks as qcow2 files with XFS, made with QEMU's tools. Needs Linux 5.12 or later, and root. */
export function makeQcow2Disks(settings: Qcow2Settings): Disks & DiskTransfers {
  const folder = resolve(settings.folder)
  const runFolder = resolve(settings.run)
  const placeOf = makePlaces(folder, runFolder)
  const fails = watchWrites(folder)
  const inTurn = makeNamedQueues()
  const doing = <T>(id: string, work: (place: Place) => Promise<T>): Promise<T> =>
    inTurn(id, () => work(placeOf(id)))

  async function space(): Promise<Space> {
    await mkdir(folder, { recursive: true })
    const { blocks, bavail, bsize } = await statfs(folder)
    const ids = (await readdir(folder)).filter((name) => !name.startsWith('.'))
    let [used, promised] = [0, 0]
    for (const place of ids.map(placeOf)) {
      const own = await allocatedBytes(place.image)
      const snapshots = await snapshotsOf(place)
      used += snapshots.reduce((sum, { allocated_bytes }) => sum + allocated_bytes, own)
      promised += Math.max(0, ((await imageSize(place.image)) ?? 0) - own)
    }
    return {
      size_bytes: blocks * bsize,
      free_bytes: bavail * bsize,
      used_bytes: used,
      promised_bytes: promised,
    }
  }

  /** Throws HostDiskFull now, so that no tenant's write fails later. */
  async function needsRoom(bytes: number): Promise<void> {
    const { free_bytes, promised_bytes } = await space()
    if (free_bytes - promised_bytes < bytes) throw new HostDiskFull()
  }

  return {
    create: ({ id, size_gib, from }, watching = {}) =>
      doing(id, async (place) => {
        await discardUnfinished(place) // left by a killed worker
        const there = await look(place)
        if (there) return there
        const bytes = size_gib * gibibyte
        await needsRoom(bytes)
        await writing(place, async (file) => {
          if (from) await copySnapshot(placeOf(from.disk_id), from.snapshot, file, bytes, watching)
          else await formatImage(place, file, bytes)
          watching.signal?.throwIfAborted()
          await publish(file, place.image)
        })
        return present(place)
      }),

    async find(id) {
      const place = placeOf(id)
      const found = await look(place)
      return found?.state === 'attached' && (await fails(place)) ? { ...found, state: 'failing' } : found
    },

    list: () => listTraces(folder, runFolder),

    resize: (id, sizeGib) =>
      doing(id, async (place) => {
        const { size_bytes, state } = await present(place)
        const bytes = sizeGib * gibibyte
        if (state === 'migrating') throw new DiskMigrating(id)
        if (bytes < size_bytes) throw new EngineRefused('A disk can grow, but not shrink')
        await needsRoom(bytes - size_bytes)
        // The file system of a detached disk grows at the next attachment.
        if (state !== 'detached') await growAttached(place, bytes)
        else if (bytes > size_bytes)
          await run('qemu-img', ['resize', '-q', '-f', 'qcow2', place.image, String(bytes)])
        return present(place)
      }),

    remove: (id) =>
      doing(id, async (place) => {
        await needsIdle(place)
        await discardUnfinished(place)
        await rename(place.folder, place.removed).catch(nullIfMissing)
        await detach(place) // anything that a killed worker left
        for (const path of [place.removed, place.run]) await rm(path, { recursive: true, force: true })
      }),

    attach: (id, to) =>
      doing(id, async (place) => {
        const { state } = await present(place)
        if (state === 'migrating') throw new DiskMigrating(id)
        await attach(place, to)
        return { host_path: place.mount }
      }),

    plug: (id, machineId) =>
      doing(id, async (place) => {
        const { state } = await present(place)
        if (state === 'migrating') throw new DiskMigrating(id)
        if (await isMounted(place)) throw new DiskAttached(id)
        await plug(place, settings.machines ?? null, machineId)
        return { socket: place.plug }
      }),

    detach: (id) => doing(id, detach),

    snapshot: (id, name) =>
      doing(id, async (place) => {
        const { size_bytes, state } = await present(place)
        await discardUnfinished(place)
        const taken = await findSnapshot(place, name)
        if (taken) return taken
        if (state === 'migrating') throw new DiskMigrating(id)
        await needsRoom(await allocatedBytes(place.image))
        await writing(place, async (file) => {
          if (state === 'detached') {
            await copyImage(imageNode(place.image), file)
          } else {
            await run('qemu-img', ['create', '-q', '-f', 'qcow2', file, String(size_bytes)])
            await giveFile(place.user, file)
            await copyOf(place, file, (fix) => whileFrozen(place.mount, fix))
            await giveFile(0, file)
          }
          await publish(file, place.snapshot(name))
        })
        return needed(await findSnapshot(place, name), name)
      }),

    removeSnapshot: (id, name) => doing(id, async (place) => rm(place.snapshot(name), { force: true })),

    space,

    serve: (id, seconds) =>
      doing(id, async (place) => {
        const { state } = await present(place)
        if (state !== 'detached' && state !== 'migrating') throw new DiskAttached(id)
        return serve(place, settings.serveOn, seconds)
      }),

    stopServing: (id) => doing(id, stopServing),

    pull: (id, from, options = {}) =>
      doing(id, async (place) => {
        await needsIdle(place)
        await needsRoom(from.size_bytes)
        await pull(place, from, options)
        return present(place)
      }),
  }
}

async function look(place: Place): Promise<FoundDisk | null> {
  const size = await loneImageSize(place.image)
  if (size === null) return null
  const [own, snapshots, attached, serving] = await Promise.all([
    allocatedBytes(place.image),
    snapshotsOf(place),
    attachment(place),
    findServing(place),
  ])
  return {
    id: place.id,
    size_bytes: size,
    allocated_bytes: snapshots.reduce((sum, { allocated_bytes }) => sum + allocated_bytes, own),
    state: serving === null ? attached : 'migrating',
    snapshots,
  }
}

async function present(place: Place): Promise<FoundDisk> {
  const found = await look(place)
  if (!found) throw new DiskNotFound(place.id)
  return found
}

function needed(snapshot: FoundSnapshot | null, name: string): FoundSnapshot {
  if (!snapshot) throw new SnapshotNotFound(name)
  return snapshot
}

async function needsIdle(place: Place): Promise<void> {
  if ((await findServing(place)) !== null) throw new DiskMigrating(place.id)
  if ((await attachment(place)) !== 'detached') throw new DiskAttached(place.id)
}

/** Lets `work` write a new file; what remains afterwards is discarded. */
async function writing(place: Place, work: (file: string) => Promise<void>): Promise<void> {
  await beginWriting(place)
  try {
    await work(join(place.unfinished, 'image'))
  } finally {
    await discardUnfinished(place)
  }
}

async function copySnapshot(
  of: Place,
  name: string,
  file: string,
  bytes: number,
  watching: Watching,
): Promise<void> {
  const { size_bytes } = needed(await findSnapshot(of, name), name)
  if (bytes < size_bytes) throw new EngineRefused('The disk would be smaller than its snapshot')
  await copyImage(imageNode(of.snapshot(name)), file, watching)
  if (bytes > size_bytes) await run('qemu-img', ['resize', '-q', '-f', 'qcow2', file, String(bytes)])
}

async function listTraces(folder: string, runFolder: string): Promise<DiskTraces[]> {
  const [files, loops, mounts, ...processes] = await Promise.all([
    Promise.all([entriesOf(folder), entriesOf(runFolder)]),
    loopsBelow(runFolder),
    mountsOf('self'),
    processesWith(`${folder}/`),
    processesWith(`${runFolder}/`),
  ])
  const found = new Map<string, DiskTraces>()
  const of = (text: string): DiskTraces | null => {
    const id = [folder, runFolder].flatMap((path) => text.split(`${path}/`)[1]?.split(/[/"',]/)[0] ?? [])[0]
    if (!id) return null
    const named = id.replace(/^\.removed-/, '')
    const traces = found.get(named) ?? { id: named, files: [], processes: [], loop_devices: [], mounts: [] }
    found.set(named, traces)
    return traces
  }
  for (const path of files.flat()) of(path)?.files.push(path)
  for (const { file, path } of loops) of(file)?.loop_devices.push(path)
  for (const path of files[1]) {
    const recorded = await recordedLoop(join(path, 'loop'))
    const its = of(`${path}/`)?.loop_devices
    if (recorded && !its?.includes(recorded.path)) its?.push(recorded.path)
  }
  for (const { path } of mounts) of(path)?.mounts.push(path)
  for (const { pid, args } of new Map(processes.flat().map((one) => [one.pid, one])).values())
    of(args.join(' '))?.processes.push(pid)
  return [...found.values()].toSorted((a, b) => (a.id < b.id ? -1 : 1))
}

async function entriesOf(path: string): Promise<string[]> {
  return ((await readdir(path).catch(nullIfMissing)) ?? []).map((name) => join(path, name))
}
