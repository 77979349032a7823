import { readdir, readFile } from 'node:fs/promises'
import { run } from '../../drivers/system/programs.ts'

/** Mounts, loop devices and processes with a folder or an id in their paths or arguments, without our drivers. */
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
 * The original path of each loop device's file. `losetup` shows the current path, which is lost once a FUSE mount below
 * the device is removed; busybox shows the 63 bytes that the device keeps.
 */
async function loopFiles(): Promise<string[]> {
  const lines = (await run('busybox', ['losetup', '-a'])).split('\n').filter(Boolean)
  return lines.map((line) => line.replace(/^\S+ \d+ /, ''))
}

const keptBytes = 63

/** Whether a path that was cut off after 63 bytes contains this text. */
function isOf(path: string, text: string): boolean {
  if (path.includes(text)) return true
  if (path.length < keptBytes) return false
  const tails = Array.from({ length: path.length }, (_, from) => path.slice(from))
  return tails.some((tail) => tail.length >= shortestPart && text.startsWith(tail))
}

/** The shortest recognized part of an id's 36 characters: its time and enough of its random part. */
const shortestPart = 20
