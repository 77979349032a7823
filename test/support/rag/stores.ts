import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SqliteStore } from '../../../images/rag/engine.ts'
import type { Store } from '../../../images/rag/store.ts'

/** A store with a folder of its own. */
export interface OpenStore {
  store: Store
  folder: string
  /** Opens the folder again, as after a new start of the container. */
  again(): Promise<void>
  close(): Promise<void>
}

export const makeFolder = (): Promise<string> => mkdtemp(join(tmpdir(), 'keelson-rag-'))

/** The engine in this process. */
export async function openEngine(
  settings: { mostChunks?: number; mostCollections?: number } = {},
): Promise<OpenStore> {
  const folder = await makeFolder()
  const open = () => new SqliteStore({ folder, mostChunks: 1_000_000, mostCollections: 100, ...settings })
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
      await rm(folder, { recursive: true })
    },
  }
}
