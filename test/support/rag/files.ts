import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/**
 * The files below the folder with any of these bytes, and which. Reads copies that another process makes: a process that closes
 * a file loses its locks on it, also those of SQLite.
 */
export function filesWith(folder: string, planted: Record<string, Uint8Array>): string[] {
  const copy = mkdtempSync(join(tmpdir(), 'keelson-rag-copy-'))
  try {
    execFileSync('cp', ['-r', `${folder}/.`, copy])
    const files = readdirSync(copy, { recursive: true, withFileTypes: true }).filter((one) => one.isFile())
    return files.flatMap(({ parentPath, name }) => {
      const bytes = readFileSync(join(parentPath, name))
      return Object.entries(planted)
        .filter(([, wanted]) => bytes.includes(Buffer.from(wanted)))
        .map(([what]) => `${what} in ${name}`)
    })
  } finally {
    rmSync(copy, { recursive: true })
  }
}
