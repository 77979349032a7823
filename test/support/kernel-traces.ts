import { readdir, readFile } from 'node:fs/promises'
import { run } from '../../drivers/system/programs.ts'

/** What the kernel still knows of a folder or an id: mounts, loop devices, processes. No driver of ours is asked. */
export async function kernelTraces(text: string): Promise<string[]> {
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const processes = await Promise.all(
    pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
  )
  const loops = (await loopFiles()).filter((file) => isOf(file, text))
  return [...loops, ...[...mounts, ...processes].filter((found) => found.includes(text))]
}

/**
 * The file of each loop device by the path it was set up with. `losetup` shows the path of today, which is lost once a FUSE mount
 * was taken away below the device; busybox shows what the device itself keeps: the first 63 bytes.
 */
async function loopFiles(): Promise<string[]> {
  const lines = (await run('busybox', ['losetup', '-a'])).split('\n').filter(Boolean)
  return lines.map((line) => line.replace(/^\S+ \d+ /, ''))
}

const keptBytes = 63

/** Whether a path, cut off after 63 bytes, has this text in it. */
function isOf(path: string, text: string): boolean {
  if (path.includes(text)) return true
  if (path.length < keptBytes) return false
  const tails = Array.from({ length: path.length }, (_, from) => path.slice(from))
  return tails.some((tail) => tail.length >= shortestPart && text.startsWith(tail))
}

/** Of an id, which is of 36: its time and enough of its random part. */
const shortestPart = 20
