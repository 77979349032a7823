import { spawn } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { connect } from 'node:tls'
import type { DiskSource, Watching } from '../disks.ts'
import { EngineUnavailable, HostDiskFull, HostNotEquipped } from '../errors.ts'
import { publish } from '../system/files.ts'
import { environment, killProcesses, processesWith, until } from '../system/programs.ts'
import { livingPid } from './daemons.ts'
import { writeFrames } from './frames.ts'
import {
  allocatedBytes,
  beginWriting,
  discardUnfinished,
  imageSize,
  loneImageSize,
  snapshotsOf,
} from './images.ts'
import type { Place } from './places.ts'
import { identity, portTaken, type Sending, tlsOptions } from './sender.ts'

// Transfers a disk between hosts file by file, over TLS with a key for this one transfer. Without the key, anyone who
// can reach the port could read the disk.

/** Where a host serves its disks to other hosts. */
export interface ServeOn {
  /** An IPv4 address that the other hosts can reach. */
  address: string
  /** Both ends included. */
  ports: readonly [from: number, to: number]
}

const portTries = 20
const readyWithinMs = 30_000

/** See DiskTransfers.serve. The disk must exist and be detached. */
export async function serve(place: Place, on: ServeOn, seconds: number): Promise<DiskSource> {
  await stopServing(place)
  const key = await writeKey(place, randomBytes(32).toString('hex'))
  const snapshots = (await snapshotsOf(place)).map(({ name }) => name)
  const contents: DiskSource['contents'] = []
  for (const snapshot of [...snapshots, null])
    contents.push({ snapshot, allocated_bytes: await allocatedBytes(fileOf(place, snapshot)) })
  const [from, to] = on.ports
  for (let tries = 0; tries < portTries; tries++) {
    const port = from + randomInt(to - from + 1)
    if (await startServing(place, { address: on.address, port }, contents, seconds)) {
      return { address: on.address, port, key, size_bytes: (await imageSize(place.image)) ?? 0, contents }
    }
  }
  throw new EngineUnavailable('No port is free to serve the disk')
}

export const findServing = (place: Place): Promise<number | null> => livingPid(place, place.servingPidFile)

export async function stopServing(place: Place): Promise<void> {
  const serving = await processesWith(place.servingPidFile)
  await killProcesses(
    serving.map(({ pid }) => pid),
    place.servingPidFile,
  )
  await rm(place.tls, { recursive: true, force: true })
  await rm(place.servingPidFile, { force: true })
}

const sender = join(import.meta.dirname, 'sender.ts')

/** False if the port is taken. */
async function startServing(
  place: Place,
  { address, port }: { address: string; port: number },
  contents: DiskSource['contents'],
  seconds: number,
): Promise<boolean> {
  const files = contents.map(({ snapshot }) => [sentName(snapshot), fileOf(place, snapshot)])
  const sending: Sending = {
    address,
    port,
    keyFile: keyFile(place),
    pidFile: place.servingPidFile,
    files: Object.fromEntries(files),
  }
  // The server ends by itself, because the client may never return.
  const args = ['--signal=KILL', String(seconds), process.execPath, sender, JSON.stringify(sending)]
  const child = spawn('timeout', args, { env: environment, detached: true, stdio: 'ignore' })
  await once(child, 'spawn').catch((error: unknown) => {
    throw new HostNotEquipped('the program timeout', error)
  })
  child.unref()
  const isReady = async (): Promise<boolean> => (await findServing(place)) !== null
  // The server may start slowly: `timeout` can end it with a signal before it serves.
  const ending = (): string | number | null => child.exitCode ?? child.signalCode
  await until(async () => ending() !== null || isReady(), readyWithinMs, 'The disk is not served')
  if (ending() === null) return true
  if (ending() === portTaken) return false
  throw new EngineUnavailable('The disk cannot be served', new Error(`it ended with ${ending()}`))
}

/** `bytesPerSec` limits reading from the source. */
export interface PullOptions extends Watching {
  bytesPerSec?: number
}

/** See DiskTransfers.pull. The disk must not be attached here. */
export async function pull(place: Place, from: DiskSource, options: PullOptions): Promise<void> {
  const { bytesPerSec = Infinity, onProgress, signal } = options
  const total = from.contents.reduce((sum, { allocated_bytes }) => sum + allocated_bytes, 0)
  const begun = performance.now()
  let received = 0
  const onReceived = async (bytes: number): Promise<void> => {
    received += bytes
    onProgress?.(Math.min(100, (100 * received) / (total || 1)))
    const aheadMs = (received / bytesPerSec) * 1000 - (performance.now() - begun)
    if (aheadMs > 1) await delay(aheadMs, undefined, { signal })
  }
  await beginWriting(place)
  try {
    // The disk itself comes last: if it is present, everything is.
    for (const { snapshot } of from.contents) {
      const unfinished = join(place.unfinished, 'pulled')
      await receive(from, sentName(snapshot), unfinished, onReceived, signal)
      await loneImageSize(unfinished)
      await publish(unfinished, fileOf(place, snapshot))
    }
    onProgress?.(100)
  } finally {
    await discardUnfinished(place)
  }
}

// Detects a source whose host is gone without closing the connection.
const silentForMs = 60_000

async function receive(
  { address, port, key }: DiskSource,
  name: string,
  file: string,
  onReceived: (bytes: number) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  signal?.throwIfAborted()
  const socket = connect({
    ...tlsOptions,
    host: address,
    port,
    timeout: silentForMs,
    minDHSize: 2048,
    pskCallback: () => ({ psk: Buffer.from(key, 'hex'), identity }),
    checkServerIdentity: () => undefined, // the source has no certificate, only the key
  })
  socket.on('timeout', () => socket.destroy(new Error('The source stopped answering')))
  const stop = (): unknown => socket.destroy(new Error('called off'))
  signal?.addEventListener('abort', stop)
  try {
    await once(socket, 'secureConnect')
    socket.write(`${name}\n`)
    await writeFrames(socket, file, onReceived)
  } catch (error) {
    signal?.throwIfAborted()
    if ((error as NodeJS.ErrnoException).code === 'ENOSPC') throw new HostDiskFull(error)
    throw error instanceof EngineUnavailable
      ? error
      : new EngineUnavailable('The disk cannot be copied', error)
  } finally {
    signal?.removeEventListener('abort', stop)
    socket.destroy()
  }
}

const fileOf = (place: Place, snapshot: string | null): string =>
  snapshot === null ? place.image : place.snapshot(snapshot)

const sentName = (snapshot: string | null): string => (snapshot === null ? 'disk' : `snapshot/${snapshot}`)

const keyFile = (place: Place): string => join(place.tls, 'key')

async function writeKey(place: Place, key: string): Promise<string> {
  // Machines pass through the folders above it, which this may be the first to make.
  await mkdir(place.run, { recursive: true })
  await mkdir(place.tls, { recursive: true, mode: 0o700 })
  await writeFile(keyFile(place), key, { mode: 0o600 })
  return key
}
