import type { Embedded, EmbedderFacts } from '../../drivers/embedders.ts'
import { CallRefused } from './dialects.ts'

// Embeddings by the platform's own models, in the form of OpenAI's API.

export interface AskedEmbeddings {
  texts: string[]
  encoding: 'float' | 'base64'
}

/** So that an answer with plain numbers stays at 2 MiB. */
const mostTexts = 256

/** Reads the body of a call. Throws CallRefused. */
export function embeddingsIn(
  fields: Record<string, unknown>,
  { dimensions }: EmbedderFacts,
): AskedEmbeddings {
  const { input, encoding_format: encoding = 'float', dimensions: wanted } = fields
  const texts: unknown[] = Array.isArray(input) ? input : [input]
  if (!texts.every((text) => typeof text === 'string' && text !== ''))
    throw invalid('`input` is a text or a list of texts, none of them empty')
  if (texts.length < 1 || texts.length > mostTexts) throw invalid(`\`input\` has 1 to ${mostTexts} texts`)
  if (encoding !== 'float' && encoding !== 'base64') throw invalid('`encoding_format` is `float` or `base64`')
  if (wanted !== undefined && wanted !== null && wanted !== dimensions)
    throw invalid(`The model’s vectors have ${dimensions} dimensions`)
  return { texts: texts as string[], encoding }
}

const invalid = (message: string): CallRefused => new CallRefused(400, 'invalid_request', message)

/** `model` is the embedder's id, so that a caller can store it beside the vectors. */
export const embeddingsAnswer = (
  { id }: EmbedderFacts,
  { vectors, tokens }: Embedded,
  encoding: AskedEmbeddings['encoding'],
): object => ({
  object: 'list',
  data: vectors.map((vector, index) => ({
    object: 'embedding',
    index,
    embedding: encoded(vector, encoding),
  })),
  model: id,
  usage: { prompt_tokens: tokens, total_tokens: tokens },
})

/** Nine digits tell any two numbers of 32 bits apart, and 17 would be those of 64 bits. */
const encoded = (vector: Float32Array, encoding: AskedEmbeddings['encoding']): number[] | string =>
  encoding === 'float'
    ? Array.from(vector, (value) => Number(value.toPrecision(9)))
    : Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64')

/** A model in the list of models, with what a collection pins. */
export const modelView = ({ id, name, hash, dimensions, most_tokens }: EmbedderFacts): object => ({
  id,
  object: 'model',
  created: 0,
  owned_by: 'keelson',
  name,
  hash,
  dimensions,
  most_tokens,
})
