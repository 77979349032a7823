// The answer of a model that ranks texts by how well they answer a question. Cohere, Jina and vLLM have `results`, Voyage
// has `data`; the rest is the same.

/** A text that was ranked. */
export interface RankedText {
  /** Its place among the texts that were sent. */
  index: number
  /** Of the model's own scale, the higher the better. */
  score: number
}

/** Best first; of equal ones, the first that was sent. Null: the answer does not score each text once. */
export function rankingIn(answer: unknown, count: number): RankedText[] | null {
  const { results, data = results } = Object(answer) as Record<string, unknown>
  if (!Array.isArray(data) || data.length !== count) return null
  const scores: number[] = Array.from({ length: count })
  for (const one of data) {
    const { index, relevance_score: score } = Object(one) as Record<string, unknown>
    if (!Number.isInteger(index) || !((index as number) in scores)) return null
    if (scores[index as number] !== undefined || !Number.isFinite(score)) return null
    scores[index as number] = score as number
  }
  return scores.map((score, index) => ({ index, score })).toSorted((a, b) => b.score - a.score)
}
