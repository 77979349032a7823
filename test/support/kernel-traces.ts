import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { promisify } from 'node:util'

/** What the kernel still knows of a folder: mounts, loop devices, processes. No driver of ours is asked. */
export async function kernelTraces(folder: string): Promise<string[]> {
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')
  const { stdout: loops } = await promisify(execFile)('losetup', [
    '--list',
    '--noheadings',
    '--output',
    'BACK-FILE',
  ])
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const processes = await Promise.all(
    pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
  )
  // A file whose FUSE mount was taken away below its loop device has lost its path.
  const nameless = loops.split('\n').filter((file) => file.trim() === '/')
  return [
    ...nameless,
    ...[...mounts, ...loops.split('\n'), ...processes].filter((text) => text.includes(folder)),
  ]
}
