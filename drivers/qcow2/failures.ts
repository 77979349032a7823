import { stat, statfs } from 'node:fs/promises'
import { run } from '../system/programs.ts'
import type { Place } from './places.ts'

// Whether writes to a mounted disk fail: its host's disk is full, or broken.

/** Below this, what is written on the host may not fit. */
const roomBytes = 256 * 1024 ** 2
const syncsWithinMs = 5_000

/** The error of a look at this path; null if there is none. */
const codeOf = (path: string): Promise<string | null> =>
  stat(path).then(
    () => null,
    (error: NodeJS.ErrnoException) => error.code ?? '',
  )

/** XFS stops at the first write of its log that fails. It then answers nothing until it is mounted again. */
export const hasStopped = async (path: string): Promise<boolean> => (await codeOf(path)) === 'EIO'

/** Tells whether a mounted disk's writes fail, or have failed since its host's disk is full. `folder`: where disks are. */
export function watchWrites(folder: string): (place: Place) => Promise<boolean> {
  const failed = new Set<string>()
  return async (place) => {
    const code = await codeOf(place.mount)
    if (code !== null) return code === 'EIO' // else it is mounted by a machine, or just now detached
    const { bavail, bsize } = await statfs(folder)
    // The kernel tells of a failed write only the process that wrote, and once who has everything written, which costs too much
    // as long as there is room.
    if (bavail * bsize > roomBytes) failed.delete(place.id)
    else if (await cannotSync(place.mount)) failed.add(place.id)
    return failed.has(place.id)
  }
}

async function cannotSync(path: string): Promise<boolean> {
  const signal = AbortSignal.timeout(syncsWithinMs)
  return run('sync', ['--file-system', path], { signal }).then(
    () => false,
    () => !signal.aborted, // late: a frozen file system, or a slow disk
  )
}
