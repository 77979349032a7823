import { mkdir, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { run } from '../../drivers/system/programs.ts'

/** A file system of its own, which can be full while the machine is not. Only root can make one. */
export interface SmallDisk {
  path: string
  /** Takes its space, except for so many bytes. */
  fill(leftBytes: number): Promise<void>
  /** Takes all of its space, also what others give back, until `clear`. */
  keepFull(): Promise<void>
  /** Gives the space back. */
  clear(): Promise<void>
  remove(): Promise<void>
}

const lookEveryMs = 20

/** Makes it in a folder. Its file takes as much space of the machine's disk as is written to it. */
export async function makeSmallDisk(folder: string, bytes: number): Promise<SmallDisk> {
  const image = join(folder, 'image')
  const path = join(folder, 'd') // short: sockets are made below it
  const filler = join(path, 'filler')
  await run('truncate', ['--size', String(bytes), image])
  await run('mkfs.ext4', ['-q', '-F', '-m', '0', image])
  await mkdir(path)
  // The kernel frees the loop device when the file system is unmounted.
  await run('mount', ['-o', 'loop', image, path])
  let left = new AbortController()
  let keeping = Promise.resolve()

  async function fill(leftBytes: number): Promise<void> {
    for (;;) {
      const { bavail, bsize } = await statfs(path)
      const room = bavail * bsize - leftBytes
      if (room < bsize) return
      const taken = (await stat(filler).catch(() => ({ size: 0 }))).size
      const args = ['--offset', String(taken), '--length', String(room), filler]
      await run('fallocate', args).catch(() => {}) // others took a part of it first: look again
    }
  }
  async function keep({ signal }: AbortController): Promise<void> {
    while (!signal.aborted) {
      await fill(0)
      await delay(lookEveryMs)
    }
  }
  async function clear(): Promise<void> {
    left.abort()
    await keeping
    await rm(filler, { force: true })
  }
  return {
    path,
    fill,
    clear,
    async keepFull() {
      await fill(0)
      left = new AbortController()
      keeping = keep(left)
    },
    async remove() {
      await clear()
      await run('umount', [path])
      for (const made of [path, image]) await rm(made, { recursive: true })
    },
  }
}
