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

// How the engine's `json-file` driver names its files, and how to find and remove the right one while it renames them.
// When the file that is written to is full, it renames `.998` to `.999`, and so on down to `.1`, and the file itself to
// `.1`; names that are not there it passes over, and what has the last name it drops. So a file's number only grows.

/** A file that is open, and where it was seen last: 0 is the one that is written to, null what was set aside. */
export interface SeenFile {
  descriptor: number
  /** Its inode, which is no other file's as long as this one is open. */
  identity: bigint
  number: number | null
}

const nameOf = (path: string, number: number): string => (number === 0 ? path : `${path}.${number}`)
/** In the container's own folder, which the engine removes with it. */
const asideOf = (path: string): string => `${path}.keelson`

/** Whether there are more full files than so many. */
export const hasMore = (path: string, files: number): boolean =>
  exists(nameOf(path, files + 1)) || exists(asideOf(path))

/**
 * Opens all of a container's files, the oldest first. A look from the low numbers to the high meets each file: none can
 * get behind it unseen. One that it meets twice was renamed meanwhile, and its place is where it was met last.
 */
export function openAll(path: string, mostFiles: number): SeenFile[] {
  const aside = asideNames(path).flatMap((name) => openAt(join(asideOf(path), name), null) ?? [])
  const seen = new Map<bigint, SeenFile>()
  for (let number = 0; number <= mostFiles; number++) {
    const file = openAt(nameOf(path, number), number)
    if (!file) continue
    const before = seen.get(file.identity)
    if (before) closeSync(before.descriptor)
    seen.delete(file.identity) // so that it is last in the order now
    seen.set(file.identity, file)
  }
  const numbered = [...seen.values()].toReversed()
  return aside.length ? inOrder(aside, numbered) : numbered
}

/** Where those that were set aside belong, their own times say. */
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

// A few are enough: each fails only where the engine renames between two calls in a row.
const removalTries = 5

/**
 * Removes this file. Its name may be another's by now: so what has the name is moved out of the engine's reach first, and
 * looked at. Another file stays there, set aside, until it is this one's turn. A file that cannot be got hold of stays: it
 * is found again.
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
