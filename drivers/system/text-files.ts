import { mkdir, open, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { sync } from '../qcow2/images.ts'

/** Writes a file of the host's own: whole or as before, and on the medium when this returns. */
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
