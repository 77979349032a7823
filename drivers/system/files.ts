import { mkdir, open, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { makeNamedQueues } from '../../lib/queue.ts'

// Atomic, durable files: a file is complete or unchanged, and synced once it has its name.

/** For `catch`: returns null for a missing file. */
export function nullIfMissing(error: unknown): null {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
  throw error
}

/** Syncs a file's data, or a folder's entries, to disk. */
export async function sync(path: string): Promise<void> {
  const handle = await open(path, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Renames a complete file; both data and name survive a power loss. */
export async function publish(unfinished: string, file: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true })
  await sync(unfinished)
  await rename(unfinished, file)
  await sync(dirname(file))
}

const writing = makeNamedQueues()

/** Writes a text file atomically. Returns when it is synced. Calls for one file run one after another. */
export const publishText = (path: string, text: string): Promise<void> =>
  writing(path, async () => {
    await mkdir(dirname(path), { recursive: true })
    const file = await open(`${path}.new`, 'w', 0o600)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(`${path}.new`, path)
    await sync(dirname(path))
  })
