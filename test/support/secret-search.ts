import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import mongoose from 'mongoose'
import { plantedFile } from './planted.ts'

// Searches for all secrets that the run's tests have planted.

const run = promisify(execFile)

/** Each secret that was found, with its file. grep searches for thousands at once. */
export async function secretsIn(files: string[]): Promise<string[]> {
  const args = [
    '--only-matching',
    '--text',
    '--with-filename',
    '--fixed-strings',
    '--file',
    plantedFile(),
    ...files,
  ]
  try {
    const { stdout } = await run('grep', args, { maxBuffer: 64 << 20, env: { LC_ALL: 'C' } })
    return [...new Set(stdout.trim().split('\n'))]
  } catch (error) {
    if ((error as { code?: unknown }).code === 1) return [] // nothing found
    throw error
  }
}

/** All records of the stack, one a line. */
export async function* allRecords(): AsyncGenerator<string> {
  for (const { collectionName } of (await mongoose.connection.db?.collections()) ?? []) {
    if (collectionName.startsWith('system.')) continue // a time series' buckets; the series itself is read
    for await (const document of mongoose.connection.collection(collectionName).find())
      yield `${collectionName} ${JSON.stringify(document)}\n`
  }
}
