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

/** The kernel's numbers, `254:0`, as makedev(3) combines them. */
export const numbersOfDevice = (dev: number): string =>
  `${(dev >> 8) & 0xfff}:${(dev & 0xff) | ((dev >> 12) & 0xfff00)}`

/**
 * The disk on which this path's file system is, as `/dev/…`: the whole disk of a partition, because only whole disks can
 * be limited. Null if the file system is not on one disk, or if the path is missing.
 */
export async function diskBelow(path: string): Promise<string | null> {
  const found = await stat(path).catch(() => null)
  if (!found) return null
  const link = `/sys/dev/block/${numbersOfDevice(found.dev)}`
  const device = await readlink(link).catch(() => null)
  if (device === null) return null
  const isPartition = await access(`${link}/partition`).then(
    () => true,
    () => false,
  )
  return `/dev/${basename(isPartition ? dirname(device) : device)}`
}
