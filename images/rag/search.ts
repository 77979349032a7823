import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { compileFilter } from './filter.ts'
import { depthOf, fused, partsOf, type Ranked, ranked } from './fusion.ts'
import type { AcceptedQuery } from './input.ts'
import type { Allowed, Mirror } from './mirror.ts'
import type { CollectionSpec, Filter, Hit } from './store.ts'
import { best, type Scored } from './top.ts'
import { dot, vectorIn } from './vectors.ts'
import { WordSearch } from './word-search.ts'

// One search of a collection. The caller holds the file at the generation of the mirror.

/** Vectors that are compared exactly, after the codes. */
const leastCandidates = 400
const candidatesPerHit = 4

export class Searcher {
  readonly #spec: CollectionSpec
  readonly #mirror: Mirror
  readonly #words: WordSearch
  readonly #vectors: StatementSync
  readonly #hits: StatementSync

  constructor(database: DatabaseSync, spec: CollectionSpec, mirror: Mirror) {
    this.#spec = spec
    this.#mirror = mirror
    this.#words = new WordSearch(database, mirror)
    // One query for all candidates: half the time of one for each.
    this.#vectors = database.prepare(
      'SELECT id, vector FROM vectors WHERE id IN (SELECT value FROM json_each(?))',
    )
    this.#vectors.setReturnArrays(true)
    this.#hits = database.prepare(`
      SELECT chunks.id, documents.id AS document_id, version, metadata, position, hash, text, locator
      FROM chunks JOIN documents ON documents.number = chunks.document
      WHERE chunks.id IN (SELECT value FROM json_each(?))`)
  }

  /** Throws `invalid_filter`. */
  search({ k, text, vector }: AcceptedQuery, filter: Filter | undefined): Hit[] {
    const allowed = filter ? this.#mirror.allowedBy(compileFilter(filter, this.#spec.metadata_schema)) : null
    const depth = depthOf({ k, text, vector })
    const byVector = vector && this.#byVector(vector, allowed, k, depth)
    const byText = text === null ? null : ranked(this.#words.search(text, allowed, depth))
    const chosen = fused(byVector, byText, k)
    return this.#read(chosen).map((row, index) => {
      const { slot, score } = chosen[index] as Scored
      return { ...hitOf(row), score, parts: partsOf(slot, byVector, byText) }
    })
  }

  #byVector(vector: Float32Array, allowed: Allowed | null, k: number, depth: number): Ranked {
    const candidates = Math.max(leastCandidates, k * candidatesPerHit)
    const slots = this.#mirror.nearestTo(vector, allowed, candidates)
    const ids = JSON.stringify(slots.map((slot) => this.#mirror.idAt(slot)))
    const rows = this.#vectors.all(ids) as unknown as [id: number, vector: Uint8Array][]
    const scored = rows.map(([id, bytes]) => ({
      slot: this.#mirror.slotOf(id),
      score: dot(vector, vectorIn(bytes) as Float32Array),
    }))
    return ranked(best(scored, depth))
  }

  /** In the same order. */
  #read(chosen: Scored[]): Row[] {
    const ids = chosen.map(({ slot }) => this.#mirror.idAt(slot))
    const rows = this.#hits.all(JSON.stringify(ids)) as unknown as Row[]
    const byId = new Map(rows.map((row) => [row.id, row]))
    return ids.map((id) => byId.get(id) as Row)
  }
}

interface Row {
  id: number
  document_id: string
  version: number
  metadata: string
  position: number
  hash: string
  text: string
  locator: string
}

const hitOf = (row: Row): Omit<Hit, 'score' | 'parts'> => ({
  document_id: row.document_id,
  version: row.version,
  metadata: JSON.parse(row.metadata) as Hit['metadata'],
  position: row.position,
  hash: row.hash,
  text: row.text,
  locator: JSON.parse(row.locator) as Hit['locator'],
})
