import { spawn } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { once } from 'node:events'
import type { DiskSource, Watching } from './disks.ts'
import { EngineUnavailable, HostNotEquipped } from './errors.ts'
import { environment, killProcesses, processesWith, until } from './programs.ts'
import { livingPid } from './qcow2-daemons.ts'
import { digestOf } from './qcow2-digests.ts'
import {
  allocatedBytes,
  beginWriting,
  copyImage,
  discardUnfinished,
  imageNode,
  imageSize,
  publish,
  snapshotsOf,
} from './qcow2-images.ts'
import type { Place } from './qcow2-places.ts'

// A disk goes from host to host by NBD over TLS, where both sides know a key made for this one transfer: without it,
// whoever reaches the port could read the disk.

/** Where a host offers its disks to others. */
export interface ServeOn {
  /** IPv4, of the side where the other hosts are. */
  address: string
  /** Both ends included. */
  ports: readonly [from: number, to: number]
}

const user = 'keelson'
// Left to itself, GnuTLS takes one without the processor's help, six times slower; those with SHA-384 know no such keys.
const cipher = 'NORMAL:-CIPHER-ALL:+AES-128-GCM'
const portTries = 20
const readyWithinMs = 10_000

/** See DiskTransfers.serve. The disk is there, and not attached. */
export async function serve(
  place: Place,
  on: ServeOn,
  seconds: number,
  signal?: AbortSignal,
): Promise<DiskSource> {
  await stopServing(place)
  const key = await writeKey(place, randomBytes(32).toString('hex'))
  const snapshots = (await snapshotsOf(place)).map(({ name }) => name)
  const contents: DiskSource['contents'] = []
  for (const snapshot of [...snapshots, null]) {
    const file = fileOf(place, snapshot)
    contents.push({
      snapshot,
      allocated_bytes: await allocatedBytes(file),
      sha256: await digestOf(file, { signal }),
    })
  }
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

// The daemon is given a socket that listens already. One that it opens itself does not set TCP_NODELAY, and with TLS
// each answer then waits for the other side's delayed acknowledgement, 40 ms.
const listenAndExec = `
use Socket;
my ($address, $port, @command) = @ARGV;
$^F = 255; # the socket stays open over exec
socket(my $socket, PF_INET, SOCK_STREAM, 0) or die "socket: $!\\n";
setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1) or die "setsockopt: $!\\n";
setsockopt($socket, IPPROTO_TCP, 1, 1) or die "setsockopt: $!\\n";
bind($socket, pack_sockaddr_in($port, inet_aton($address))) or exit 98;
listen($socket, 16) or exit 98;
s/LISTENING/fileno($socket)/e for @command;
exec(@command);
`
const portTaken = 98

/** False when the port is taken. */
async function startServing(
  place: Place,
  { address, port }: { address: string; port: number },
  contents: DiskSource['contents'],
  seconds: number,
): Promise<boolean> {
  const server = { addr: { type: 'fd', str: 'LISTENING' }, 'tls-creds': 'key' }
  const disks = contents.flatMap(({ snapshot }, index) => {
    const image = imageNode(fileOf(place, snapshot))
    const file = { ...image.file, 'read-only': true }
    const node = { ...image, 'node-name': `n${index}`, 'read-only': true, file }
    const shown = { type: 'nbd', id: `e${index}`, 'node-name': `n${index}`, name: exportName(snapshot) }
    return ['--blockdev', JSON.stringify(node), '--export', JSON.stringify(shown)]
  })
  const args = [
    // It ends by itself: the one who asked may never come back.
    ['--signal=KILL', String(seconds)],
    ['perl', '-e', listenAndExec, '--', address, String(port)],
    ['qemu-storage-daemon', '--pidfile', place.servingPidFile],
    ['--object', JSON.stringify(keyObject(place, 'server'))],
    ['--nbd-server', JSON.stringify(server)],
    disks,
  ]
  const child = spawn('timeout', args.flat(), { env: environment, detached: true, stdio: 'ignore' })
  await once(child, 'spawn').catch((error: unknown) => {
    throw new HostNotEquipped('the program timeout', error)
  })
  child.unref()
  const isReady = async (): Promise<boolean> => (await findServing(place)) !== null
  // The one it is given to may be slow to start: its time can be over before it serves, and then a signal has ended it.
  const ending = (): string | number | null => child.exitCode ?? child.signalCode
  await until(async () => ending() !== null || isReady(), readyWithinMs, 'The disk is not served')
  if (ending() === null) return true
  if (ending() === portTaken) return false
  throw new EngineUnavailable('The disk cannot be served', new Error(`it ended with ${ending()}`))
}

/** `bytesPerSec` holds for what is read from the source. */
export interface PullOptions extends Watching {
  bytesPerSec?: number
}

/** See DiskTransfers.pull. The disk is not attached here. */
export async function pull(place: Place, from: DiskSource, options: PullOptions): Promise<void> {
  const { bytesPerSec, onProgress, signal } = options
  await beginWriting(place)
  try {
    await writeKey(place, from.key)
    const objects = [keyObject(place, 'client'), ...(bytesPerSec ? [limitObject(bytesPerSec)] : [])]
    const args = objects.flatMap((object) => ['--object', JSON.stringify(object)])
    const progress = makeProgress(from.contents, onProgress)
    // The disk itself comes last: once it is there, all is there.
    for (const { snapshot, sha256 } of from.contents) {
      const unfinished = join(place.unfinished, 'pulled')
      const source = sourceNode(from, snapshot, bytesPerSec !== undefined)
      await copyImage(source, unfinished, { objects: args, signal, onProgress: progress.copied })
      if ((await digestOf(unfinished, { signal, onProgress: progress.checked })) !== sha256)
        throw new EngineUnavailable('The pulled disk differs from its source')
      await publish(unfinished, fileOf(place, snapshot))
      progress.next()
    }
  } finally {
    await discardUnfinished(place)
    await rm(place.tls, { recursive: true, force: true })
  }
}

// Of the time for an image, measured.
const copying = 0.85

/** Each image's part of the whole is what it takes on its host. */
function makeProgress(contents: DiskSource['contents'], onProgress: (percent: number) => void = () => {}) {
  const total = contents.reduce((sum, { allocated_bytes }) => sum + allocated_bytes, 0)
  let index = 0
  let before = 0
  const part = (): number => (contents[index]?.allocated_bytes ?? 0) / (total || 1)
  const report = (share: number): void => onProgress(Math.min(100, (before + share * part()) * 100))
  return {
    copied: (percent: number) => report((copying * percent) / 100),
    checked: (percent: number) => report(copying + ((1 - copying) * percent) / 100),
    next() {
      before += part()
      index++
    },
  }
}

const fileOf = (place: Place, snapshot: string | null): string =>
  snapshot === null ? place.image : place.snapshot(snapshot)

const exportName = (snapshot: string | null): string => (snapshot === null ? 'disk' : `snapshot/${snapshot}`)

function sourceNode(from: DiskSource, snapshot: string | null, limited: boolean): object {
  const server = { type: 'inet', host: from.address, port: String(from.port) }
  const nbd = { driver: 'nbd', server, export: exportName(snapshot), 'tls-creds': 'key' }
  return limited ? { driver: 'throttle', 'throttle-group': 'limit', file: nbd } : { driver: 'raw', file: nbd }
}

const limitObject = (bytesPerSec: number) => ({
  'qom-type': 'throttle-group',
  id: 'limit',
  limits: { 'bps-total': bytesPerSec },
})

const keyObject = (place: Place, endpoint: 'server' | 'client') => ({
  'qom-type': 'tls-creds-psk',
  id: 'key',
  dir: place.tls,
  endpoint,
  ...(endpoint === 'client' ? { username: user, priority: cipher } : {}),
})

async function writeKey(place: Place, key: string): Promise<string> {
  await mkdir(place.tls, { recursive: true, mode: 0o700 })
  await writeFile(join(place.tls, 'keys.psk'), `${user}:${key}\n`, { mode: 0o600 })
  return key
}
