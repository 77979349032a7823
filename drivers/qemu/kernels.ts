import { createHash, randomUUID } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { chmod, constants, copyFile, mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { makeNamedQueues } from '../../lib/queue.ts'
import { KernelMissing } from '../errors.ts'
import { nullIfMissing, sync } from '../system/files.ts'

// The kernels of a host's machines. The guest folder has the newest one only, and a build writes over it; so the host
// keeps a copy of each, and a machine boots the one with which it was made until its image changes.

/** The files with which a machine boots; the initramfs has the kernel's modules and the agent. */
export interface KernelFiles {
  kernel: string
  initramfs: string
}

export interface Kernel extends KernelFiles {
  /** `sha256:…` of both files. */
  digest: string
}

export function makeKernels(folder: string) {
  const checked = new Map<string, Promise<Kernel>>()
  // Two that keep the same kernel would remove each other's.
  const inTurn = makeNamedQueues()

  const placeOf = (digest: string): Kernel => {
    const at = join(folder, digest.replace(':', '-'))
    return { digest, kernel: join(at, 'vmlinuz'), initramfs: join(at, 'initramfs') }
  }

  async function check(digest: string): Promise<Kernel> {
    const its = placeOf(digest)
    if ((await digestOf(its).catch(nullIfMissing)) !== digest) throw new KernelMissing(digest)
    return its
  }

  /** Checks its bytes once for each process. Throws KernelMissing. */
  async function find(digest: string): Promise<Kernel> {
    const finding = checked.get(digest) ?? check(digest)
    checked.set(digest, finding)
    finding.catch(() => checked.delete(digest))
    const its = await finding
    const now = new Date()
    await utimes(dirname(its.kernel), now, now) // it counts as used, see removeUnused
    return its
  }

  /** Null if it is not here. */
  const findAny = (digest: string): Promise<Kernel | null> =>
    find(digest).catch((error: unknown) => {
      if (error instanceof KernelMissing) return null
      throw error
    })

  /** Keeps a copy, unless there is one. Throws KernelMissing if the files are not `expected`. */
  const keep = (files: KernelFiles, expected?: string): Promise<Kernel> =>
    inTurn('keep', () => copyOf(files, expected))

  async function copyOf(files: KernelFiles, expected: string | undefined): Promise<Kernel> {
    const there = await findAny(expected ?? (await digestOf(files)))
    if (there) return there
    const unfinished = join(folder, `.unfinished-${randomUUID()}`)
    const copy = { kernel: join(unfinished, 'vmlinuz'), initramfs: join(unfinished, 'initramfs') }
    try {
      await mkdir(unfinished, { recursive: true })
      for (const part of ['kernel', 'initramfs'] as const) {
        await copyFile(files[part], copy[part], constants.COPYFILE_FICLONE)
        await chmod(copy[part], 0o644) // each machine's user reads it
        await sync(copy[part])
      }
      // Of the copy: a build may be writing the files.
      const digest = await digestOf(copy)
      if (expected !== undefined && digest !== expected) throw new KernelMissing(expected)
      const place = dirname(placeOf(digest).kernel)
      await rm(place, { recursive: true, force: true }) // damaged
      await rename(unfinished, place)
      await sync(folder)
      return await find(digest)
    } finally {
      await rm(unfinished, { recursive: true, force: true })
    }
  }

  /** Removes those that are not `used` and were not found for so long. */
  async function removeUnused(used: string[], unusedMs: number): Promise<string[]> {
    const names = (await readdir(folder).catch(nullIfMissing)) ?? []
    const kept = new Set(used.map((digest) => digest.replace(':', '-')))
    const removed: string[] = []
    for (const name of names.filter((one) => !kept.has(one))) {
      const found = await stat(join(folder, name)).catch(nullIfMissing)
      if (!found || found.mtimeMs > Date.now() - unusedMs) continue
      checked.delete(name.replace('-', ':'))
      await rm(join(folder, name), { recursive: true, force: true })
      removed.push(name)
    }
    return removed
  }

  return { find, findAny, keep, removeUnused }
}

async function digestOf({ kernel, initramfs }: KernelFiles): Promise<string> {
  const parts = [`${await sha256(kernel)} vmlinuz\n`, `${await sha256(initramfs)} initramfs\n`]
  return `sha256:${createHash('sha256').update(parts.join('')).digest('hex')}`
}

async function sha256(file: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(file), hash)
  return hash.digest('hex')
}
