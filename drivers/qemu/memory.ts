import { createWriteStream } from 'node:fs'
import { chown, rename, rm, stat, statfs } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { EngineUnavailable, HostDiskFull } from '../errors.ts'
import { kernelMib, memoryHandle } from './arguments.ts'
import type { MachinePlace } from './places.ts'
import type { MachineRecord } from './records.ts'
import { nullIfMissing, sync } from '../system/files.ts'
import type { Qmp } from '../system/qmp.ts'

// Saves a machine's memory to a file, through a socket and this process, which looks after the room. QEMU loads it itself.

interface Migration {
  status?: string
  'error-desc'?: string
}

const lookEveryMs = 10
const itsMemory = 'the machine’s memory'
const mebibyte = 1024 ** 2
// Free space to keep on the host's file system: below it, the disk counts as full.
const spareMib = 64
/** QEMU's default limit would also slow down a stopped machine. */
const noThrottle = { 'max-bandwidth': 2 ** 46 }

export const statusOf = async (qmp: Qmp): Promise<string> =>
  ((await qmp.execute('query-status')) as { status: string }).status

/** Bytes that memory files being written may still take, on this host. */
export interface PromisedRoom {
  promisedBytes: number
}

/**
 * Reserves space for a machine's memory until the returned function is called. Several reservations add up. Reserves
 * the full memory size, although a file is seldom half of it. Throws HostDiskFull.
 */
export async function promiseRoom(
  room: PromisedRoom,
  place: MachinePlace,
  memoryMib: number,
): Promise<() => void> {
  const bytes = (memoryMib + kernelMib) * mebibyte
  const release = () => {
    room.promisedBytes -= bytes
  }
  room.promisedBytes += bytes
  const { bavail, bsize } = await statfs(place.folder)
  if (bavail * bsize >= room.promisedBytes + spareMib * mebibyte) return release
  release()
  throw new HostDiskFull(undefined, itsMemory)
}

/**
 * Stops the machine and writes its memory to the unfinished file, complete and synced on return. The machine stays
 * stopped.
 */
export async function saveMemory(qmp: Qmp, place: MachinePlace, signal?: AbortSignal): Promise<number> {
  await rm(place.unfinishedMemory, { force: true })
  const path = join(place.run, 'memory.sock')
  await rm(path, { force: true })
  const server = createServer()
  const connected = new Promise<Socket>((resolve) => server.once('connection', resolve))
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(path, resolve)
  })
  try {
    await chown(path, place.user, place.user)
    await qmp.execute('stop')
    await qmp.execute('migrate-set-parameters', noThrottle)
    await qmp.execute('migrate', { uri: `unix:${path}` })
    const file = createWriteStream(place.unfinishedMemory, { mode: 0o600 })
    const written = connected.then((socket) => pipeline(socket, file, signal ? { signal } : {}))
    let unwritten: unknown = null
    written.catch((error: unknown) => (unwritten = error))
    await completed(qmp).catch((error: unknown) => {
      throw unwritten ?? error // QEMU only sees a closed connection
    })
    await written
    await sync(place.unfinishedMemory)
    signal?.throwIfAborted()
    return (await stat(place.unfinishedMemory)).size
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOSPC') throw new HostDiskFull(error, itsMemory)
    throw error
  } finally {
    server.close()
    await rm(path, { force: true })
  }
}

async function completed(qmp: Qmp): Promise<void> {
  for (;;) {
    const { status, 'error-desc': why } = (await qmp.execute('query-migrate')) as Migration
    if (status === 'completed') return
    if (status === 'failed' || status === 'cancelled')
      throw new EngineUnavailable('The machine’s memory could not be written', new Error(why))
    await delay(lookEveryMs)
  }
}

/** Renames the memory file. From here on, the machine is suspended. */
export async function publishMemory(place: MachinePlace): Promise<void> {
  await rename(place.unfinishedMemory, place.memory)
  await sync(dirname(place.memory))
}

/** Continues a machine that was stopped to save its memory. */
export async function goOn(qmp: Qmp, place: MachinePlace): Promise<void> {
  const { status } = (await qmp.execute('query-migrate')) as Migration
  if (status === 'active' || status === 'setup') {
    await qmp.execute('migrate_cancel')
    while (((await qmp.execute('query-migrate')) as Migration).status === 'cancelling')
      await delay(lookEveryMs)
  }
  if ((await statusOf(qmp)) !== 'running') await qmp.execute('cont')
  await rm(place.unfinishedMemory, { force: true })
}

/** Has a waiting QEMU load the memory file that it was started with, and close it. The machine stays stopped. */
export async function loadMemory(qmp: Qmp): Promise<void> {
  try {
    await qmp.execute('migrate-incoming', { uri: memoryHandle })
    while ((await statusOf(qmp)) === 'inmigrate') await delay(lookEveryMs)
  } catch (error) {
    throw new EngineUnavailable('The machine’s memory could not be read', error)
  }
}

export const hasMemory = async (place: MachinePlace): Promise<boolean> =>
  (await stat(place.memory).catch(nullIfMissing)) !== null

/** The root disk's modification time and size, which show a write. */
export async function rootState(place: MachinePlace): Promise<NonNullable<MachineRecord['resumed_over']>> {
  const { mtimeNs, size } = await stat(place.root, { bigint: true })
  return { mtime_ns: String(mtimeNs), size: Number(size) }
}
