import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { disksRun, disksRunOf } from '../../script/lib/settings.ts'
import { allHosts } from './hosts.ts'
import { kernelTraces } from './kernel-traces.ts'
import { layout } from './stack.ts'

/** The folders of the stack's hosts with disks; a folder that is not there yet is left out. */
export const diskFolders = (): string[] =>
  readdirSync(layout.state)
    .filter((name) => /^host(-\d+)?$/.test(name))
    .map((name) => join(layout.state, name, 'disks'))
    .filter(existsSync)

/** All that is on this machine of a disk: files of any host, mounts, loop devices and processes. No record of ours is asked. */
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

/** The arguments of a process when they have this text in them; null too when it has ended. */
function argumentsWith(pid: string, text: string): string | null {
  try {
    const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
    return args.includes(text) ? args : null
  } catch {
    return null
  }
}

/** The processes that serve an attached disk. */
export const pidsServing = (id: string): string[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => argumentsWith(pid, `/${id}/`)?.startsWith('qemu-storage-daemon --daemonize'))

/** The names of the hosts that have a whole disk of this id. */
export async function diskPlaces(id: string): Promise<string[]> {
  const hosts = await allHosts()
  return hosts
    .filter((_, i) =>
      existsSync(join(layout.state, i === 0 ? 'host' : `host-${i + 1}`, 'disks', id, 'disk.qcow2')),
    )
    .map(({ name }) => name)
}

/** What the kernel has of a disk: the daemons that serve it, its loop devices, and whatever else has its id in its arguments. */
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

/** What is being written of a disk, on any host. */
export const unfinishedOf = (id: string): string[] =>
  diskFolders()
    .map((folder) => join(folder, id, 'unfinished'))
    .filter(existsSync)

/** As a boot leaves a disk of the first host: its file, and nothing that serves or mounts it. */
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
