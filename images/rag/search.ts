import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { compileFilter } from './filter.ts'
import type { AcceptedQuery } from './input.ts'
import type { Allowed, Mirror } from './mirror.ts'
import type { CollectionSpec, Filter, Hit, ScorePart } from './store.ts'
import { best, type Scored } from './top.ts'
import { dot, vectorIn } from './vectors.ts'
import { WordSearch } from './word-search.ts'

// One search of a collection. The caller holds the file at the generation of the mirror.

/** Vectors that are compared exactly, after the codes. */
const leastCandidates = 400
const candidatesPerHit = 4
/** How deep both lists are read before they are fused. */
const leastDepth = 100
const depthPerHit = 2
/** Of reciprocal rank fusion (Cormack, Clarke, Büttcher 2009). */
const fusionK = 60

/** By the slot. */
type Ranked = Map<number, ScorePart>

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
    const fused = text !== null && vector !== null
    const depth = fused ? Math.max(leastDepth, k * depthPerHit) : k
    const byVector = vector && this.#byVector(vector, allowed, k, depth)
    const byText = text === null ? null : ranked(this.#words.search(text, allowed, depth))
    const chosen = best(scoresOf(byVector, byText), k)
    return this.#read(chosen).map((row, index) => {
      const { slot, score } = chosen[index] as Scored
      const parts = { vector: byVector?.get(slot) ?? null, text: byText?.get(slot) ?? null }
      return { ...hitOf(row), score, parts }
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

const ranked = (list: Scored[]): Ranked =>
  new Map(list.map(({ slot, score }, index) => [slot, { score, rank: index + 1 }]))

/** Of one list its own scores; of both the sum of the ranks' reciprocals. */
function scoresOf(byVector: Ranked | null, byText: Ranked | null): Scored[] {
  const lists = [byVector, byText].filter((list) => list !== null)
  const scores = new Map<number, number>()
  for (const list of lists)
    for (const [slot, { score, rank }] of list)
      scores.set(slot, (scores.get(slot) ?? 0) + (lists.length > 1 ? 1 / (fusionK + rank) : score))
  return [...scores].map(([slot, score]) => ({ slot, score }))
}
