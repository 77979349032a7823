import { StoreError } from './errors.ts'
import type { Chunk } from './store.ts'

// What a new version of a document changes in the store, for every engine.

export interface StoredChunk {
  id: number
  hash: string
  text: string
}

export interface Placed {
  position: number
  chunk: Chunk
}
export interface Plan {
  kept: { id: number; at: Placed }[]
  /** `from`: the stored chunk that has the vector, if the caller sent none. */
  added: { at: Placed; from: number | null }[]
  removed: StoredChunk[]
  /** Hashes of chunks without a vector anywhere. */
  missing: string[]
}

/** A chunk that comes without a vector stays as it is, if it is there; all others are written. */
export function makePlan(stored: StoredChunk[], chunks: Chunk[]): Plan {
  const vectors = new Map(stored.map(({ hash, id }) => [hash, id]))
  const free = Map.groupBy(stored, ({ hash }) => hash)
  const left = new Set(stored)
  const missing = new Set<string>()
  const plan: Omit<Plan, 'removed' | 'missing'> = { kept: [], added: [] }
  for (const [position, chunk] of chunks.entries()) {
    const at = { position, chunk }
    const from = chunk.vector ? null : vectors.get(chunk.hash)
    const same = from ? free.get(chunk.hash)?.at(-1) : undefined
    if (same && same.text === chunk.text) {
      free.get(chunk.hash)?.pop()
      left.delete(same)
      plan.kept.push({ id: same.id, at })
    } else if (from === undefined) missing.add(chunk.hash)
    else plan.added.push({ at, from })
  }
  return { ...plan, removed: [...left], missing: [...missing] }
}

export const stale = (version: number): StoreError =>
  new StoreError('stale_version', `The store has version ${version} of the document, or has deleted it`)

/** `stored` and `deleted`: the versions that are there; 0 for none. Throws `stale_version`. */
export function checkNotStale(version: number, stored: number, deleted: number): void {
  if (stored > version) throw stale(stored)
  if (deleted >= version) throw stale(deleted)
}
