import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from '../../drivers/system/programs.ts'
import type { TestHost } from './hosts.ts'
import { platform } from './platform.ts'
import { makeSmallDisk, type SmallDisk } from './small-disk.ts'
import { layout } from './stack.ts'

/**
 * Puts the folder with a host's disks on a small file system. The host must have no disks, then and at `end`. Only root can
 * do this.
 */
export async function withSmallDisk(
  { roles }: TestHost,
  bytes: number,
): Promise<SmallDisk & { end: () => Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'small-'))
  const small = await makeSmallDisk(folder, bytes)
  // The host takes whatever else is in its folder for what is left of a disk.
  const own = join(small.path, 'disks')
  const disks = join(layout.state, roles.host, 'disks')
  await mkdir(own)
  await platform.stop(roles.host)
  await run('mount', ['--bind', own, disks])
  await platform.start(roles.host)
  return {
    ...small,
    async end() {
      await small.clear()
      await platform.stop(roles.host)
      await run('umount', [disks])
      await small.remove()
      await rm(folder, { recursive: true })
      await platform.start(roles.host)
    },
  }
}
