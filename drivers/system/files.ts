import { mkdir, open, rename } from 'node:fs/promises'
import { dirname } from 'node:path'

// Files of the host's own: a file is whole or as it was before, and on the medium once it has its name.

/** For `catch`: a file that is not there is no fault. */
export function nullIfMissing(error: unknown): null {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
  throw error
}

/** Writes to the medium what has been written to a file, or which files a folder has. */
export async function sync(path: string): Promise<void> {
  const handle = await open(path, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Gives a whole file its name, so that both survive a loss of power. */
export async function publish(unfinished: string, file: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true })
  await sync(unfinished)
  await rename(unfinished, file)
  await sync(dirname(file))
}

/** Writes a text file, whole or as before. Returns once it is on the medium. */
export async function publishText(path: string, text: string): Promise<void> {
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
}
