import { mkdir, open, readFile, rm, stat } from 'node:fs/promises'
import { EngineUnavailable, HostNotEquipped } from '../errors.ts'
import { killProcesses, livingProcess, type Process, processesWith, run, until } from '../system/programs.ts'
import { Qmp, QmpError } from '../system/qmp.ts'
import { imageNode } from './images.ts'
import type { Place } from './places.ts'

// One storage daemon for each attached disk. It shows the image as a plain file (FUSE), outlives the worker, and
// takes orders while the disk is in use (QMP).

/** The disk in the daemon's own terms. */
export const node = 'disk'

const endsWithinMs = 60_000

/** Of a disk's daemon that lives; null when there is none. */
export async function findDaemon(place: Place): Promise<number | null> {
  return livingPid(place, place.pidFile)
}

/** The pid in a file, if the process is this disk's: a pid may have become another's. */
export async function livingPid(place: Place, pidFile: string): Promise<number | null> {
  const pid = Number(await readFile(pidFile, 'utf8').catch(() => ''))
  const found = pid > 0 ? await livingProcess(pid) : null
  return found && bears(found, place) ? found.pid : null
}

const bears = ({ args }: Process, place: Place): boolean => args.some((arg) => arg.includes(`${place.run}/`))

/** Whom a daemon serves: the host, which shows the disk to containers, or a machine. */
export type ServedTo = 'host' | 'machine'

/** Starts one where there is none, see endDaemons. Throws HostNotEquipped. */
export async function startDaemon(place: Place, to: ServedTo): Promise<void> {
  if (to === 'host') await needsDevice('/dev/fuse')
  await mkdir(place.run, { recursive: true, mode: 0o700 })
  if (to === 'host') await (await open(place.raw, 'w', 0o600)).close() // FUSE mounts over a file

  // What the file system frees, or writes as zeros, takes no room on the host.
  const image = imageNode(place.image)
  const blockdev = {
    ...image,
    'node-name': node,
    discard: 'unmap',
    'detect-zeroes': 'unmap',
    file: { ...image.file, discard: 'unmap' },
  }
  const fuse = { type: 'fuse', id: 'fuse', 'node-name': node, mountpoint: place.raw, writable: true }
  const monitor = `socket,id=monitor,server=on,wait=off,path=${place.monitor.replaceAll(',', ',,')}`
  // Returns when the file is there.
  const args = [
    ['--daemonize', '--pidfile', place.pidFile],
    ['--blockdev', JSON.stringify(blockdev)],
    ['--chardev', monitor],
    ['--monitor', 'chardev=monitor'],
    to === 'host' ? ['--export', JSON.stringify(fuse)] : [],
  ]
  await run('qemu-storage-daemon', args.flat())
}

/** Lets it write what it holds, and waits until it has ended. */
export async function stopDaemon(place: Place): Promise<void> {
  const pid = await findDaemon(place)
  if (pid !== null) {
    await asking(place, (qmp) => qmp.execute('quit')).catch(() => {}) // it may end before it answers
    await until(async () => !(await livingProcess(pid)), endsWithinMs, 'The disk’s daemon does not end')
  }
  await endDaemons(place)
}

/** Kills whatever a killed worker may have left of one, also what was only about to become one. */
export async function endDaemons(place: Place): Promise<void> {
  const text = `${place.run}/`
  const left = await processesWith(text)
  await killProcesses(
    left.map(({ pid }) => pid),
    text,
  )
  for (const file of [place.pidFile, place.monitor, place.plug]) await rm(file, { force: true })
}

export async function needsDevice(path: string): Promise<void> {
  const there = await stat(path).then(
    () => true,
    () => false,
  )
  if (!there) throw new HostNotEquipped(`the device ${path}`)
}

/** A conversation with the disk's daemon. */
export async function asking<T>(place: Place, work: (qmp: Qmp) => Promise<T>): Promise<T> {
  const qmp = await Qmp.connect(place.monitor)
  try {
    return await work(qmp)
  } finally {
    qmp.close()
  }
}

const exportsOf = async (qmp: Qmp): Promise<string[]> =>
  ((await qmp.execute('query-block-exports')) as { id: string }[]).map(({ id }) => id)

/** Null while there is no daemon that answers. */
export const servedTo = (place: Place): Promise<ServedTo | null> =>
  asking(place, async (qmp) => ((await exportsOf(qmp)).includes('fuse') ? 'host' : 'machine')).catch(
    () => null,
  )

/** Lets QEMU on this host use the disk over a socket, as the export `disk`. The daemon makes its file anew. */
export function offer(place: Place): Promise<void> {
  return asking(place, async (qmp) => {
    if ((await exportsOf(qmp)).includes('nbd')) return
    await qmp.execute('nbd-server-stop').catch(isRefusal)
    await rm(place.plug, { force: true })
    await qmp.execute('nbd-server-start', { addr: { type: 'unix', data: { path: place.plug } } })
    const order = { type: 'nbd', id: 'nbd', 'node-name': node, name: node, writable: true }
    await qmp.execute('block-export-add', order)
  })
}

/** A machine that uses it waits, and connects again to the next offer. */
export function withhold(place: Place): Promise<void> {
  return asking(place, async (qmp) => void (await qmp.execute('nbd-server-stop').catch(isRefusal)))
}

function isRefusal(error: unknown): void {
  if (!(error instanceof QmpError)) throw error
}

export const resizeNode = (place: Place, bytes: number): Promise<unknown> =>
  asking(place, (qmp) => qmp.execute('block_resize', { 'node-name': node, size: bytes }))

interface Job {
  id: string
  status: string
  error?: string
}

// The name of the one job that a daemon has at a time, and of the image that it writes.
const copy = 'copy'

const jobsOf = async (qmp: Qmp): Promise<Job[]> => (await qmp.execute('query-jobs')) as Job[]

/**
 * Copies what the disk holds into `file`, an empty image of the same size. `hold` is called with a function that
 * fixes the moment: from then on the daemon saves what is about to be overwritten. Resolves when the copy is whole.
 */
export function copyOf(
  place: Place,
  file: string,
  hold: (fix: () => Promise<unknown>) => Promise<void>,
): Promise<void> {
  return asking(place, async (qmp) => {
    const ended = Promise.withResolvers<void>()
    qmp.onEvent(({ event, data }) => {
      if (event === 'JOB_STATUS_CHANGE' && data['id'] === copy && data['status'] === 'concluded')
        ended.resolve()
    })
    await dropCopy(qmp)
    try {
      await qmp.execute('blockdev-add', { ...imageNode(file), 'node-name': copy })
      const order = { 'job-id': copy, device: node, target: copy, sync: 'full', 'auto-dismiss': false }
      await hold(() => qmp.execute('blockdev-backup', order))
      await Promise.race([ended.promise, qmp.closed])
      const failed = (await jobsOf(qmp)).find(({ id }) => id === copy)?.error
      if (failed) throw new EngineUnavailable('The disk could not be copied', new Error(failed))
    } finally {
      await dropCopy(qmp)
    }
  })
}

/** Takes away a copy that was not finished, perhaps by a worker that was killed since. */
async function dropCopy(qmp: Qmp): Promise<void> {
  const [job] = await jobsOf(qmp)
  if (job) {
    if (job.status !== 'concluded') await qmp.execute('job-cancel', { id: copy })
    const concluded = async (): Promise<boolean> => (await jobsOf(qmp))[0]?.status === 'concluded'
    await until(concluded, endsWithinMs, 'The disk’s copy does not end')
    await qmp.execute('job-dismiss', { id: copy })
  }
  const nodes = (await qmp.execute('query-named-block-nodes', { flat: true })) as { 'node-name': string }[]
  if (nodes.some((one) => one['node-name'] === copy)) await qmp.execute('blockdev-del', { 'node-name': copy })
}
