import {
  closeSync,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmdirSync,
  statSync,
  unlinkSync,
} from 'node:fs'
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { exactTime } from './times.ts'

// How the engine's `json-file` driver names its files, and how to find and remove one while it renames them. When the
// file being written is full, the driver renames `.998` to `.999`, and so on down to `.1`, and the file itself to
// `.1`. It skips missing names and drops the file with the last name. So a file's number only grows.

/** An open file with its last seen number: 0 is the file being written, null a file that was set aside. */
export interface SeenFile {
  descriptor: number
  /** The inode, which stays unique while the file is open. */
  identity: bigint
  number: number | null
}

const nameOf = (path: string, number: number): string => (number === 0 ? path : `${path}.${number}`)
/** In the container's folder, so that the engine removes both together. */
const asideOf = (path: string): string => `${path}.keelson`

/** Whether there are more than `files` full files. */
export const hasMore = (path: string, files: number): boolean =>
  exists(nameOf(path, files + 1)) || exists(asideOf(path))

/**
 * Opens all files of a container, oldest first. Looks from low to high numbers, so no file can move past unseen. A
 * file seen twice was renamed in between, and counts where it was seen last.
 */
export function openAll(path: string, mostFiles: number): SeenFile[] {
  const aside = asideNames(path).flatMap((name) => openAt(join(asideOf(path), name), null) ?? [])
  const seen = new Map<bigint, SeenFile>()
  for (let number = 0; number <= mostFiles; number++) {
    const file = openAt(nameOf(path, number), number)
    if (!file) continue
    const before = seen.get(file.identity)
    if (before) closeSync(before.descriptor)
    seen.delete(file.identity) // move it to the end of the order
    seen.set(file.identity, file)
  }
  const numbered = [...seen.values()].toReversed()
  return aside.length ? inOrder(aside, numbered) : numbered
}

/** Sorts the files that were set aside by the time of their first line. */
function inOrder(aside: SeenFile[], numbered: SeenFile[]): SeenFile[] {
  const begun = new Map([...aside, ...numbered].map((file) => [file, timeOf(file)]))
  const timed = (file: SeenFile): string => begun.get(file) ?? ''
  const waiting = aside.toSorted((a, b) => (timed(a) < timed(b) ? -1 : 1))
  const ordered: SeenFile[] = []
  for (const file of numbered) {
    while (waiting[0] && timed(waiting[0]) < timed(file)) ordered.push(...waiting.splice(0, 1))
    ordered.push(file)
  }
  return [...ordered, ...waiting]
}

// Each try fails only if the engine renames between two consecutive calls.
const removalTries = 5

/**
 * Removes this file. Its name may belong to another file by now, so the file with that name is first moved out of the
 * engine's reach and checked. If it is another file, it stays set aside until its own removal. If this file cannot be
 * moved, it stays and is found again.
 */
export function removeFile(path: string, { identity, number }: SeenFile, mostFiles: number): void {
  const folder = asideOf(path)
  const aside = asideNames(path).find((name) => identityAt(join(folder, name)) === identity)
  if (aside !== undefined) unlinkSync(join(folder, aside))
  else if (number !== null) removeNumbered(path, identity, number, mostFiles)
  if (exists(folder) && asideNames(path).length === 0) rmdirSync(folder)
}

function removeNumbered(path: string, identity: bigint, from: number, mostFiles: number): void {
  mkdirSync(asideOf(path), { recursive: true })
  for (let tries = 0, at = from; tries < removalTries; tries++) {
    while (at <= mostFiles && identityAt(nameOf(path, at)) !== identity) at++
    if (at > mostFiles) return
    const name = join(asideOf(path), randomUUID())
    try {
      renameSync(nameOf(path, at), name)
    } catch (error) {
      if (isMissing(error)) continue
      throw error
    }
    if (identityAt(name) !== identity) continue
    unlinkSync(name)
    return
  }
}

const firstBytes = 128 * 1024
const ofEntry = /"time":"([^"]+)"\}\n/

function timeOf({ descriptor }: SeenFile): string {
  const buffer = Buffer.alloc(firstBytes)
  const [, time] =
    ofEntry.exec(buffer.toString('utf8', 0, readSync(descriptor, buffer, 0, firstBytes, 0))) ?? []
  return time === undefined ? '' : exactTime(time)
}

function asideNames(path: string): string[] {
  try {
    return readdirSync(asideOf(path))
  } catch (error) {
    if (isMissing(error)) return []
    throw error
  }
}

function openAt(name: string, number: number | null): SeenFile | null {
  try {
    const descriptor = openSync(name, 'r')
    return { descriptor, identity: fstatSync(descriptor, { bigint: true }).ino, number }
  } catch (error) {
    if (isMissing(error)) return null
    throw error
  }
}

const identityAt = (name: string): bigint | null =>
  statSync(name, { bigint: true, throwIfNoEntry: false })?.ino ?? null

const exists = (name: string): boolean => statSync(name, { throwIfNoEntry: false }) !== undefined
const isMissing = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === 'ENOENT'
