import { chmod, chown, mkdir, open, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { EngineUnavailable, HostNotEquipped } from '../errors.ts'
import { confine, confined, firstHandle, giveFile } from '../system/confinement.ts'
import type { IoLimits } from '../linux/block-devices.ts'
import { makeGroups, removeGroups } from '../linux/groups.ts'
import { nullIfMissing } from '../system/files.ts'
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

/** The disk's image. Blocks that the file system frees or zeroes take no space on the host. */
function imageArguments(place: Place): string[] {
  const image = imageNode(place.image)
  const blockdev = {
    ...image,
    'node-name': node,
    discard: 'unmap',
    'detect-zeroes': 'unmap',
    file: { ...image.file, discard: 'unmap' },
  }
  return ['--blockdev', JSON.stringify(blockdev)]
}

const program = 'qemu-storage-daemon'
// FUSE mounts the plain file, and the folders above the disk's files may be closed.
const rights = ['sys_admin', 'dac_override']

/** Starts a daemon for the host. There must be none, see endDaemons. Throws HostNotEquipped. */
export async function startDaemon(place: Place): Promise<void> {
  await needsDevice('/dev/fuse')
  await mkdir(place.run, { recursive: true })
  await (await open(place.raw, 'w', 0o600)).close() // FUSE mounts over an existing file
  const fuse = { type: 'fuse', id: 'fuse', 'node-name': node, mountpoint: place.raw, writable: true }
  const monitor = `socket,id=monitor,server=on,wait=off,path=${place.monitor.replaceAll(',', ',,')}`
  // Returns when the file exists.
  const args = [
    ['--daemonize', '--pidfile', place.pidFile],
    imageArguments(place),
    ['--chardev', monitor],
    ['--monitor', 'chardev=monitor'],
    ['--export', JSON.stringify(fuse)],
  ]
  const [first = '', ...words] = confined(rights, [program, ...args.flat()])
  await run(first, words)
}

/** How daemons that serve machines are started. */
export interface ServingMachines {
  /** Made of images/guest/helper. */
  helper: string
  /** Of each daemon, on the disk below the disks' folder. */
  io: IoLimits | null
}

// It holds what a machine has asked for and not yet got, and the kernel counts its cache too.
const limits = { cpu_cores: 2, memory_mib: 512, pids: 128 }

/** Starts a daemon for a machine. There must be none. `group` may connect to `plug`. */
export async function startConfinedDaemon(
  place: Place,
  { helper, io }: ServingMachines,
  group: number,
): Promise<void> {
  for (const folder of [place.run, place.plugFolder]) await mkdir(folder, { recursive: true })
  for (const folder of [place.run, place.folder]) await chmod(folder, 0o711)
  await chown(place.plugFolder, place.user, group)
  await chmod(place.plugFolder, 0o710)
  await giveFile(place.user, place.image)
  await confine(helper, `${place.run}/`, {
    program,
    arguments: [
      ...imageArguments(place),
      '--chardev',
      `socket,id=monitor,fd=${firstHandle},server=on,wait=off`,
      '--monitor',
      'chardev=monitor',
      // Only for the path in its arguments: this file is not read.
      '--pidfile',
      join(place.plugFolder, 'pid'),
    ],
    user: place.user,
    group,
    writable: [place.folder, place.plugFolder],
    readable: [],
    root: place.view,
    control_groups: await makeGroups(place.mark, place.id, { ...limits, io }),
    handles: [{ listen: place.monitor }],
    monitor: place.monitor,
    pid_file: place.pidFile,
  })
}

/** Whether the running daemon lets `group` connect. */
export const admits = async ({ plugFolder }: Place, group: number): Promise<boolean> =>
  (await stat(plugFolder).catch(nullIfMissing))?.gid === group

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
  await removeGroups(place.mark, place.id)
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
