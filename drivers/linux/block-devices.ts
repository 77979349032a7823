import { access, readFile, readlink, stat } from 'node:fs/promises'
import { basename, dirname } from 'node:path'

/** What a process or its group may read, and write, each second, on a disk. */
export interface IoLimits {
  /** As `/dev/…`. */
  disk: string
  bytes: number
  operations: number
}

/** The kernel's numbers of a disk: `254:0`. */
export const numbersOf = async (disk: string): Promise<string> =>
  (await readFile(`/sys/class/block/${basename(disk)}/dev`, 'utf8')).trim()

/**
 * The disk on which this path's file system is, as `/dev/…`: the whole disk of a partition, because only whole disks can
 * be limited. Null if the file system is not on one disk, or if the path is missing.
 */
export async function diskBelow(path: string): Promise<string | null> {
  const found = await stat(path).catch(() => null)
  if (!found) return null
  // The kernel's numbers, as makedev(3) combines them.
  const major = (found.dev >> 8) & 0xfff
  const minor = (found.dev & 0xff) | ((found.dev >> 12) & 0xfff00)
  const link = `/sys/dev/block/${major}:${minor}`
  const device = await readlink(link).catch(() => null)
  if (device === null) return null
  const isPartition = await access(`${link}/partition`).then(
    () => true,
    () => false,
  )
  return `/dev/${basename(isPartition ? dirname(device) : device)}`
}
