import { access, constants } from 'node:fs/promises'
import { join } from 'node:path'
import { environment, run } from './programs.ts'

const forDisks = ['qemu-storage-daemon', 'qemu-img', 'mkfs.xfs', 'xfs_growfs', 'losetup'].concat([
  'mount',
  'setpriv',
  'umount',
  'fsfreeze',
  'perl',
  'timeout',
])
const devices = ['/dev/fuse', '/dev/loop-control']

/** What this host lacks for disks, in words; empty if nothing. */
export const missingForDisks = (): Promise<string[]> => missing(forDisks, devices)

/** What this host lacks for microVMs. */
export const missingForMachines = (guest: string): Promise<string[]> =>
  missing(
    ['qemu-system-x86_64', 'qemu-img', 'mkfs.ext4', 'setpriv'],
    ['/dev/net/tun', join(guest, 'vmlinuz')],
  )

/** What this host lacks for VMs besides; `build` makes their images. */
export const missingForVms = (build: string): Promise<string[]> =>
  missing(['mmdebstrap', 'unshare', 'depmod', 'chroot'], [build])

const leastHaproxy = [2, 6] as const

/** What this host lacks for load balancers. */
export async function missingForLoadBalancers(): Promise<string[]> {
  const lacking = await missing(['haproxy', 'ip', 'nsenter', 'fallocate'], [])
  if (lacking.length > 0) return lacking
  const said = await run('haproxy', ['-v']).catch(() => '')
  const [, major = 0, minor = 0] = /version (\d+)\.(\d+)/.exec(said)?.map(Number) ?? []
  const isNew = major > leastHaproxy[0] || (major === leastHaproxy[0] && minor >= leastHaproxy[1])
  return isNew ? [] : [`HAProxy ${leastHaproxy.join('.')} or later`]
}

async function missing(programs: string[], paths: string[]): Promise<string[]> {
  const folders = environment.PATH.split(':')
  const lacking = process.getuid?.() === 0 ? [] : ['the rights of root']
  for (const program of programs) {
    const places = folders.map((folder) => join(folder, program))
    if (!(await found(places, constants.X_OK))) lacking.push(`the program ${program}`)
  }
  for (const path of paths) if (!(await found([path], constants.F_OK))) lacking.push(path)
  return lacking
}

const found = (paths: string[], mode: number): Promise<boolean> =>
  Promise.any(paths.map((path) => access(path, mode))).then(
    () => true,
    () => false,
  )
