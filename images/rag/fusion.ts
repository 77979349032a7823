import type { AcceptedQuery } from './input.ts'
import type { Hit, ScorePart } from './store.ts'
import { best, type Scored } from './top.ts'

// How the list by vector and the list by text become one, for every engine.

/** How deep both lists are read before they are fused. */
const leastDepth = 100
const depthPerHit = 2
/** Of reciprocal rank fusion (Cormack, Clarke, Büttcher 2009). */
const fusionK = 60

/** Scores and ranks by the chunk's slot, or its number where there are no slots. */
export type Ranked = Map<number, ScorePart>

/** How many of the best a search needs of each list. */
export const depthOf = ({ k, text, vector }: AcceptedQuery): number =>
  text !== null && vector !== null ? Math.max(leastDepth, k * depthPerHit) : k

/** `list`: best first. */
export const ranked = (list: Scored[]): Ranked =>
  new Map(list.map(({ slot, score }, index) => [slot, { score, rank: index + 1 }]))

/** The best `k`: by the scores of the one list, or of both by the sum of the ranks' reciprocals. Null: it was not asked for. */
export function fused(byVector: Ranked | null, byText: Ranked | null, k: number): Scored[] {
  const lists = [byVector, byText].filter((list) => list !== null)
  const scores = new Map<number, number>()
  for (const list of lists)
    for (const [slot, { score, rank }] of list)
      scores.set(slot, (scores.get(slot) ?? 0) + (lists.length > 1 ? 1 / (fusionK + rank) : score))
  return best(
    [...scores].map(([slot, score]) => ({ slot, score })),
    k,
  )
}

export const partsOf = (slot: number, byVector: Ranked | null, byText: Ranked | null): Hit['parts'] => ({
  vector: byVector?.get(slot) ?? null,
  text: byText?.get(slot) ?? null,
})
