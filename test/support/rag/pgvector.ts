import { existsSync } from 'node:fs'
import { chmod, rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { describe } from '@jest/globals'
import { PgvectorStore } from '../../../images/rag/pgvector/engine.ts'
import { openServer, type ServedStore } from './servers.ts'
import { makeFolder, type OpenStore } from './stores.ts'

// The engine for many documents. `script/bootstrap --tests` has its database.

export const programs = resolve(
  process.env['KEELSON_TOOLS'] ?? '.state/tools',
  'pgvector/wrapped/usr/lib/postgresql/17/bin',
)
/** `describe`, if the database is on this machine. */
export const describePgvector = existsSync(programs) ? describe : describe.skip
/** PostgreSQL refuses root: where the tests are root's, it is nobody's. */
const user = process.getuid?.() === 0 ? 65_534 : null

interface Settings {
  mostChunks?: number
  mostCollections?: number
  exactUpTo?: number
}

/** The engine in this process, with a folder that is there. */
export const openPgvectorAt = (folder: string, settings: Settings = {}): PgvectorStore =>
  new PgvectorStore({ folder, programs, user, mostChunks: 1_000_000, mostCollections: 100, ...settings })

/** The engine in this process. */
export async function openPgvector(settings: Settings = {}): Promise<OpenStore> {
  const parent = await makeFolder()
  await chmod(parent, 0o711) // its user passes
  const folder = join(parent, 'store')
  const open = () => openPgvectorAt(folder, settings)
  let store = open()
  return {
    get store() {
      return store
    },
    folder,
    async again() {
      await store.close()
      store = open()
    },
    async close() {
      await store.close()
      await rm(parent, { recursive: true })
    },
  }
}

/** A process with this engine. */
export async function openPgvectorServer(env: Record<string, string> = {}): Promise<ServedStore> {
  const served = await openServer({
    RAG_ENGINE: 'pgvector',
    RAG_POSTGRESQL: programs,
    ...(user !== null && { RAG_USER: String(user) }),
    ...env,
  })
  const close = served.close.bind(served)
  return Object.assign(served, {
    async close() {
      await served.stop() // a killed process would leave its database
      await close()
    },
  })
}
