import { mkdir, open, readFile, rm, stat } from 'node:fs/promises'
import { EngineUnavailable, HostNotEquipped } from '../errors.ts'
import { confined } from '../system/confinement.ts'
import { killProcesses, livingProcess, type Process, processesWith, run, until } from '../system/programs.ts'
import { Qmp, QmpError } from '../system/qmp.ts'
import { imageNode } from './images.ts'
import type { Place } from './places.ts'

// One storage daemon per attached disk. It shows the image as a plain file (FUSE), outlives the worker, and accepts
// commands while the disk is in use (QMP).

/** The disk's name in the daemon. */
export const node = 'disk'

const endsWithinMs = 60_000

/** The pid of the disk's running daemon; null if there is none. */
export async function findDaemon(place: Place): Promise<number | null> {
  return livingPid(place, place.pidFile)
}

/** The pid in a file, if the process is this disk's: the pid may have been reused. */
export async function livingPid(place: Place, pidFile: string): Promise<number | null> {
  const pid = Number(await readFile(pidFile, 'utf8').catch(() => ''))
  const found = pid > 0 ? await livingProcess(pid) : null
  return found && bears(found, place) ? found.pid : null
}

const bears = ({ args }: Process, place: Place): boolean => args.some((arg) => arg.includes(`${place.run}/`))

/** The user of a daemon: the host, which mounts the disk for containers, or a machine. */
export type ServedTo = 'host' | 'machine'

/** FUSE mounts the plain file. Both pass the folders above the disk's files. */
const rightsOf: Record<ServedTo, string[]> = {
  host: ['sys_admin', 'dac_override'],
  machine: ['dac_override'],
}

/** Starts a daemon. There must be none, see endDaemons. Throws HostNotEquipped. */
export async function startDaemon(place: Place, to: ServedTo): Promise<void> {
  if (to === 'host') await needsDevice('/dev/fuse')
  await mkdir(place.run, { recursive: true, mode: 0o700 })
  if (to === 'host') await (await open(place.raw, 'w', 0o600)).close() // FUSE mounts over an existing file

  // Blocks that the file system frees or zeroes take no space on the host.
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
  // Returns when the file exists.
  const args = [
    ['--daemonize', '--pidfile', place.pidFile],
    ['--blockdev', JSON.stringify(blockdev)],
    ['--chardev', monitor],
    ['--monitor', 'chardev=monitor'],
    to === 'host' ? ['--export', JSON.stringify(fuse)] : [],
  ]
  const [program = '', ...words] = confined(rightsOf[to], ['qemu-storage-daemon', ...args.flat()])
  await run(program, words)
}

/** Makes the daemon flush its data and waits until it ends. */
export async function stopDaemon(place: Place): Promise<void> {
  const pid = await findDaemon(place)
  if (pid !== null) {
    await asking(place, (qmp) => qmp.execute('quit')).catch(() => {}) // it may end before it answers
    await until(async () => !(await livingProcess(pid)), endsWithinMs, 'The disk’s daemon does not end')
  }
  await endDaemons(place)
}

/** Kills all daemons that a killed worker may have left, including starting ones. */
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

/** Opens a monitor connection to the disk's daemon for `work`. */
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

/** Null if no daemon answers. */
export const servedTo = (place: Place): Promise<ServedTo | null> =>
  asking(place, async (qmp) => ((await exportsOf(qmp)).includes('fuse') ? 'host' : 'machine')).catch(
    () => null,
  )

/** Exports the disk as `disk` to QEMU on this host. The daemon recreates the socket file. */
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

/** Stops the export. A machine that uses it waits and reconnects to the next one. */
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

// The name of the daemon's only job, and of the image that it writes.
const copy = 'copy'

const jobsOf = async (qmp: Qmp): Promise<Job[]> => (await qmp.execute('query-jobs')) as Job[]

/**
 * Copies the disk into `file`, an empty image of the same size. `hold` gets a function that fixes the copied moment:
 * from then on, the daemon saves data before it is overwritten. Resolves when the copy is complete.
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

/** Removes an unfinished copy, perhaps of a killed worker. */
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
