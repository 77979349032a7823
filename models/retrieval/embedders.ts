import { createHash } from 'node:crypto'
import type { EmbedderFacts } from '../../drivers/embedders.ts'
import type { Embedder } from '../../images/rag/store.ts'
import type { ConnectorDocument } from '../connectors/connectors.ts'

/** The embedder of a collection: one of the platform's own, or a model of a connector's provider. */
export interface CollectionEmbedder extends Omit<EmbedderFacts, 'most_tokens'> {
  /** Null: of a provider, which does not say. */
  most_tokens: number | null
  /** Absent: it is one of the platform's own. */
  connector_id?: string
}

/** There are no files to hash: a provider is trusted to have one model of this name and length at this place. */
export function remoteEmbedder(
  { _id: connector_id, provider, base_url }: Pick<ConnectorDocument, '_id' | 'provider' | 'base_url'>,
  model: string,
  dimensions: number,
): CollectionEmbedder {
  const hash = createHash('sha256')
    .update(JSON.stringify([provider, base_url, model, dimensions]))
    .digest('hex')
  const id = `${model}@${hash.slice(0, 16)}`
  return { id, name: model, hash, dimensions, most_tokens: null, connector_id }
}

/** As the store knows an embedder. */
export const pinned = ({ name, hash, dimensions }: CollectionEmbedder): Embedder => ({
  name,
  hash,
  dimensions,
})

/** Whether both make the same vectors, and are called in the same way. */
export const isSameEmbedder = (a: CollectionEmbedder, b: CollectionEmbedder): boolean =>
  a.hash === b.hash && a.connector_id === b.connector_id
