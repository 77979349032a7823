import { clusteredVectors as clustered } from '../../../script/benchmarks/retrieval/clustered.ts'
import { randomOf } from '../random.ts'

/** The same for the same seed. */
export const clusteredVectors = (
  count: number,
  { dimensions, clusters, seed }: { dimensions: number; clusters: number; seed: number },
): Float32Array[] => clustered(count, { dimensions, clusters, random: randomOf(seed) })

/** The places of the `count` vectors that are nearest to the query by their angle, of those that `allowed` names. */
export function exactNearest(
  vectors: Float32Array[],
  query: Float32Array,
  count: number,
  allowed: (at: number) => boolean = () => true,
): number[] {
  return vectors
    .map((vector, at) => ({ at, score: allowed(at) ? cosine(vector, query) : Number.NEGATIVE_INFINITY }))
    .toSorted((a, b) => b.score - a.score)
    .slice(0, count)
    .map(({ at }) => at)
}

export function cosine(a: Float32Array, b: Float32Array): number {
  let [product, squaresOfA, squaresOfB] = [0, 0, 0]
  for (const [index, value] of a.entries()) {
    const other = b[index] as number
    product += value * other
    squaresOfA += value * value
    squaresOfB += other * other
  }
  return product / Math.sqrt(squaresOfA * squaresOfB)
}
