import { existsSync, readdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'

// The files of a store: one for each collection, with SQLite's log and index of the log beside it, and one for its snapshot.

const ending = '.sqlite'
const beside = ['', '-wal', '-shm']

export const collectionFile = (folder: string, name: string): string =>
  join(folder, 'collections', name + ending)
/** Relative to the store's folder. */
export const snapshotPath = (name: string): string => join('snapshots', name + ending)

/** Names of the collections that have a file. Removes what a killed process has left of others. */
export function collectionsIn(folder: string): string[] {
  const files = readdirSync(join(folder, 'collections'))
  const names = files.filter((file) => file.endsWith(ending)).map((file) => file.slice(0, -ending.length))
  for (const file of files)
    if (!names.some((name) => beside.some((end) => file === name + ending + end)))
      rmSync(join(folder, 'collections', file))
  for (const file of readdirSync(join(folder, 'snapshots')))
    if (!names.includes(file.slice(0, -ending.length)) || !file.endsWith(ending))
      rmSync(join(folder, 'snapshots', file))
  return names
}

/** The collection's own file goes first: without it, the others are removed at the next start. */
export function removeCollection(folder: string, name: string): void {
  for (const end of beside) rmSync(collectionFile(folder, name) + end, { force: true })
  rmSync(join(folder, snapshotPath(name)), { force: true })
}

export const bytesOfCollection = (folder: string, name: string): number =>
  beside
    .map((end) => collectionFile(folder, name) + end)
    .filter((file) => existsSync(file))
    .reduce((sum, file) => sum + statSync(file).size, 0)
