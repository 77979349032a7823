import type { Embedder, Filter, Store } from '../../../images/rag/store.ts'
import { dot, normalised } from '../../../images/rag/vectors.ts'

// Exact search, against which the scan of sign codes is held.

/** The places of the nearest vectors by their angle. */
export function exactNearest(vectors: Float32Array[], asked: Float32Array, count: number): Set<number> {
  const direction = normalised(asked) as Float32Array
  const scored = vectors.map((vector, place) => ({ place, score: dot(direction, vector) / lengthOf(vector) }))
  return new Set(
    scored
      .toSorted((a, b) => b.score - a.score)
      .slice(0, count)
      .map(({ place }) => place),
  )
}

const lengthOf = (vector: Float32Array): number => Math.sqrt(dot(vector, vector))

export interface Placed {
  document: string
  position: number
  vector: Float32Array
}

/** The share of the ten nearest by exact search that the store finds. `leaves`: what the filter leaves, by the document's id. */
export async function recallOfScan(
  store: Store,
  { collection, embedder, placed }: { collection: string; embedder: Embedder; placed: Placed[] },
  asked: Float32Array[],
  { filter, leaves }: { filter?: Filter; leaves: (document: string) => boolean },
): Promise<number> {
  const left = placed.filter(({ document }) => leaves(document))
  const vectors = left.map(({ vector }) => vector)
  let [found, all] = [0, 0]
  for (const vector of asked) {
    const nearest = exactNearest(vectors, vector, 10)
    const names = new Set(Array.from(nearest, (place) => nameOf(left[place] as Placed)))
    const { hits } = await store.search(collection, {
      mode: 'vector',
      k: 10,
      vector,
      embedder,
      ...(filter && { filter }),
    })
    found += hits.filter(({ document_id: document, position }) =>
      names.has(nameOf({ document, position })),
    ).length
    all += names.size
  }
  return found / all
}

const nameOf = ({ document, position }: Pick<Placed, 'document' | 'position'>): string =>
  `${document}/${position}`
