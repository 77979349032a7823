import type { CollectionEmbedder } from './embedders.ts'
import { ModelFailed, type Embeddings, type EmbeddingsAsked } from './embeddings.ts'

// Vectors of a collection's embedder, for its chunks and for questions to it.

type For = Pick<EmbeddingsAsked, 'tenant_id' | 'purpose'> & { signal?: AbortSignal }

/** Throws ModelFailed, also if the model gives vectors of another length than it did. */
export async function embed(
  embeddings: Embeddings,
  { id, name, dimensions, connector_id }: CollectionEmbedder,
  texts: string[],
  asked: For,
): Promise<Float32Array[]> {
  // Of the platform's own by the id, which has the hash.
  const model = connector_id === undefined ? id : name
  const { vectors } = await embeddings.embed(texts, { ...asked, connector_id: connector_id ?? null, model })
  const other = vectors.find(({ length }) => length !== dimensions)
  if (other)
    throw new ModelFailed(
      `The vectors of ${name} have ${other.length} dimensions now, and the collection’s have ${dimensions}: change its embedder`,
      { code: 'embedder_changed', permanent: true, status: 409 },
    )
  return vectors
}

/** The same for chunks: one that is too long for the embedder gets the mean of its parts' vectors. */
export const embedChunks = (
  embeddings: Embeddings,
  embedder: CollectionEmbedder,
  texts: string[],
  asked: For,
): Promise<Float32Array[]> => embedWhole((some) => embed(embeddings, embedder, some, asked), texts)

/** A text of these characters is not refused for its length. */
const shortText = 200

async function embedWhole(
  embedAll: (texts: string[]) => Promise<Float32Array[]>,
  texts: string[],
): Promise<Float32Array[]> {
  try {
    return await embedAll(texts)
  } catch (error) {
    // Providers name no text, and each says it in its own way.
    const mayBeTooLong =
      error instanceof ModelFailed && [400, 413, 422].includes(error.status ?? 0) && error.permanent
    const [text = ''] = texts
    if (!mayBeTooLong || (texts.length === 1 && text.length <= shortText)) throw error
    if (texts.length === 1) return [meanOf(await embedWhole(embedAll, halvesOf(text)))]
    const middle = Math.ceil(texts.length / 2)
    const first = await embedWhole(embedAll, texts.slice(0, middle))
    return [...first, ...(await embedWhole(embedAll, texts.slice(middle)))]
  }
}

/** Divided at the white space nearest before the middle, if there is some. */
function halvesOf(text: string): string[] {
  const middle = Math.floor(text.length / 2)
  const space = text.slice(0, middle).search(/\s\S*$/)
  // Not between the two units of one character.
  const at = space > middle / 2 ? space : middle + (/[\uDC00-\uDFFF]/.test(text.charAt(middle)) ? 1 : 0)
  return [text.slice(0, at), text.slice(at)]
}

const meanOf = (vectors: Float32Array[]): Float32Array =>
  (vectors[0] as Float32Array).map(
    (_, at) => vectors.reduce((sum, vector) => sum + (vector[at] as number), 0) / vectors.length,
  )
