import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { disksRun, disksRunOf } from '../../script/lib/settings.ts'
import { allHosts } from './hosts.ts'
import { kernelTraces } from './kernel-traces.ts'
import { layout } from './stack.ts'

/** The disk folders of the stack's hosts that exist. */
export const diskFolders = (): string[] =>
  readdirSync(layout.state)
    .filter((name) => /^host(-\d+)?$/.test(name))
    .map((name) => join(layout.state, name, 'disks'))
    .filter(existsSync)

/** Everything of a disk on this machine, without our records: files of any host, mounts, loop devices and processes. */
export async function tracesOf(id: string): Promise<string[]> {
  const runs = existsSync(disksRunOf(layout)) ? readdirSync(disksRunOf(layout)) : []
  const folders = [...diskFolders(), ...runs.map((run) => join(disksRunOf(layout), run))]
  const files = folders.flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.includes(id))
      .map((name) => join(folder, name)),
  )
  return [...files, ...(await kernelTraces(id))]
}

/** The arguments of a process that contain this text; null if they do not, or the process has ended. */
function argumentsWith(pid: string, text: string): string | null {
  try {
    const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
    return args.includes(text) ? args : null
  } catch {
    return null
  }
}

/** The daemons of an attached disk. */
export const pidsServing = (id: string): string[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => argumentsWith(pid, `/${id}/`)?.startsWith('qemu-storage-daemon --daemonize'))

/** The names of the hosts that have a complete disk of this id. */
export async function diskPlaces(id: string): Promise<string[]> {
  const hosts = await allHosts()
  return hosts
    .filter((_, i) =>
      existsSync(join(layout.state, i === 0 ? 'host' : `host-${i + 1}`, 'disks', id, 'disk.qcow2')),
    )
    .map(({ name }) => name)
}

/** The kernel's use of a disk: its daemons, its loop devices, and other processes with its id in their arguments. */
export async function diskUse(id: string): Promise<{ daemons: number; loops: number; others: string[] }> {
  const { stdout } = await promisify(execFile)('losetup', ['--list', '--noheadings', '--output', 'BACK-FILE'])
  const daemons = pidsServing(id)
  const all = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  const others = all
    .filter((pid) => !daemons.includes(pid))
    .flatMap((pid) => argumentsWith(pid, `/${id}`) ?? [])
  return {
    daemons: daemons.length,
    loops: stdout.split('\n').filter((file) => file.includes(id)).length,
    others,
  }
}

/** The unfinished files of a disk, on any host. */
export const unfinishedOf = (id: string): string[] =>
  diskFolders()
    .map((folder) => join(folder, id, 'unfinished'))
    .filter(existsSync)

/** Leaves a disk of the first host as a reboot does: its file, without daemon or mount. */
export async function forgetDisk(id: string): Promise<void> {
  const run = promisify(execFile)
  const folder = join(disksRun(layout, 1), id)
  await run('umount', ['--lazy', join(folder, 'files')])
  const { stdout } = await run('losetup', [
    '--noheadings',
    '--output',
    'NAME',
    '--associated',
    join(folder, 'raw'),
  ])
  for (const device of stdout.split('\n').filter(Boolean)) await run('losetup', ['--detach', device.trim()])
  for (const pid of pidsServing(id)) process.kill(Number(pid), 'SIGKILL')
  await run('umount', ['--lazy', join(folder, 'raw')])
  await rm(folder, { recursive: true })
}
