import { z } from 'zod'
import { PermissionDenied } from '../../lib/problem.ts'
import {
  acceptCollection,
  acceptCollectionDeletion,
  acceptEmbedder,
  readyStore,
} from '../../models/retrieval/collection-acceptance.ts'
import {
  collectionNamed,
  RagCollection,
  type RagCollectionDocument,
  ragCollectionStates,
} from '../../models/retrieval/collections.ts'
import { sumsOf } from '../../models/retrieval/documents.ts'
import { type AskedEmbedder, chooseEmbedder } from '../../models/retrieval/embedder-choice.ts'
import type { CollectionEmbedder } from '../../models/retrieval/embedders.ts'
import type { Embeddings } from '../../models/retrieval/embeddings.ts'
import { accepting, acceptingOrThere } from '../accept.ts'
import { forced, Id, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'

export const path = '/api/v1/rag/collections'

export const CollectionName = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9_-]{0,62}$/,
    'must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or digit',
  )
export const byName = z.strictObject({ name: CollectionName })

const MetadataSchema = z
  .record(z.string(), z.enum(['string', 'number', 'boolean']))
  .describe('The types of the fields by which searches may filter, at most 32')

const EmbedderView = z
  .strictObject({
    id: z.string().describe('Its name, and the start of its hash'),
    name: z.string(),
    hash: z.string().describe('SHA-256 of everything that determines its vectors'),
    dimensions: z.int(),
    most_tokens: z
      .int()
      .nullable()
      .describe('The longest text that it reads, in tokens; null: its provider does not say'),
    connector_id: Id.nullable().describe('The connector; null: the embedder is one of the platform’s own'),
  })
  .meta({ id: 'RagEmbedder' })

export const Model = z.strictObject({
  connector: z
    .string()
    .min(1)
    .max(200)
    .describe('The id of a connector, or a provider for its default connector'),
  model: z.string().min(1).max(200).describe('The provider’s name of the model'),
})
const Embedder = z
  .union([z.string().min(1).max(200), Model])
  .describe(
    'The name or id of one of the platform’s embedders, or a connector’s model, which needs the permission `connectors:use`',
  )

const CollectionView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    name: z.string(),
    status: z.enum(ragCollectionStates.all),
    status_reason: z.string().nullable().describe('Why the last operation failed'),
    operation_id: Id.nullable().describe('The open operation'),
    embedder: EmbedderView,
    next_embedder: EmbedderView.nullable().describe(
      'The embedder that replaces it once all documents are embedded',
    ),
    metadata_schema: MetadataSchema,
    documents: z.int(),
    chunks: z.int().describe('Chunks in the index'),
    bytes: z.int().describe('Bytes of the documents as they were last uploaded'),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'RagCollection' })
type View = z.output<typeof CollectionView>

const none = { documents: 0, chunks: 0, bytes: 0 }

const embedderView = (embedder: CollectionEmbedder): z.output<typeof EmbedderView> => {
  const { id, name, hash, dimensions, most_tokens, connector_id = null } = embedder
  return { id, name, hash, dimensions, most_tokens, connector_id }
}

const toView = (
  collection: RagCollectionDocument,
  sums: Pick<View, 'documents' | 'chunks' | 'bytes'> = none,
): View => {
  const { embedder, next_embedder } = collection
  return {
    id: collection._id,
    tenant_id: collection.tenant_id,
    name: collection.name,
    status: collection.status,
    status_reason: collection.status_reason,
    operation_id: collection.operation_id,
    embedder: embedderView(embedder),
    next_embedder: next_embedder ? embedderView(next_embedder) : null,
    metadata_schema: collection.metadata_schema,
    documents: sums.documents,
    chunks: sums.chunks,
    bytes: sums.bytes,
    created_at: time(collection.created_at),
    updated_at: time(collection.updated_at),
  }
}

async function toViews(collections: RagCollectionDocument[]): Promise<View[]> {
  const [first] = collections
  const sums = first
    ? await sumsOf(
        first.tenant_id,
        collections.map(({ _id }) => _id),
      )
    : new Map()
  return collections.map((one) => toView(one, sums.get(one._id)))
}

/** The HTTP operations on collections of retrieval. */
export const makeRagCollections = ({ embeddings = noEmbeddings }: OperationsContext) => [
  list({
    path,
    permission: 'rag:read',
    summary: 'List collections of documents',
    model: RagCollection,
    view: CollectionView,
    toViews,
    scope: ({ tenant_id }) => ({ tenant_id }),
  }),

  operation({
    method: 'POST',
    path,
    permission: 'rag:create',
    summary: 'Create a collection of documents that are searched together',
    body: z.strictObject({
      name: CollectionName.describe('Unique in the tenant'),
      embedder: Embedder.optional(),
      metadata_schema: MetadataSchema.default({}),
    }),
    responses: { 202: CollectionView },
    refuses: [403],
    async handle({ caller, body: { name, embedder: asked, metadata_schema } }) {
      const embedder = await embedderFor(caller, embeddings, asked)
      return accepting(caller, toView, (by) => acceptCollection(by, { name, embedder, metadata_schema }))
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{name}`,
    permission: 'rag:read',
    summary: 'Get a collection',
    params: byName,
    responses: { 200: CollectionView },
    async handle({ caller, params: { name } }) {
      const [view] = await toViews([await collectionNamed(caller, name)])
      return view as View
    },
  }),

  operation({
    method: 'PUT',
    path: `${path}/{name}`,
    permission: 'rag:update',
    summary: 'Embed all documents with another embedder, which then replaces the current one',
    params: byName,
    body: z.strictObject({ embedder: Embedder }),
    responses: { 200: CollectionView, 202: CollectionView },
    refuses: [403],
    async handle({ caller, params: { name }, body }) {
      const { _id } = await collectionNamed(caller, name)
      const embedder = await embedderFor(caller, embeddings, body.embedder)
      const sums = (await sumsOf(caller.tenant_id, [_id])).get(_id)
      const shown = (collection: RagCollectionDocument) => toView(collection, sums)
      return acceptingOrThere(caller, shown, (by) => acceptEmbedder(by, name, embedder))
    },
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{name}`,
    permission: 'rag:delete',
    summary: 'Delete a collection that nothing uses, with its documents',
    params: byName,
    query: forced,
    responses: { 202: CollectionView },
    handle: ({ caller, params: { name }, query }) =>
      accepting(caller, toView, (by) => acceptCollectionDeletion(by, name, query)),
  }),
]

/** Throws PermissionDenied, InvalidInput, and what the model gateway refuses. */
async function embedderFor(
  caller: Caller,
  embeddings: Embeddings,
  asked: AskedEmbedder,
): Promise<CollectionEmbedder> {
  // All who search and upload then have work done with the connector.
  if (typeof asked === 'object' && !caller.permissions.has('connectors:use'))
    throw new PermissionDenied('connectors:use')
  return chooseEmbedder(embeddings, await readyStore(caller), asked)
}

/** For documents about the API, which need no platform that runs. */
export const noEmbeddings: Embeddings = {
  embed: () => Promise.reject(new Error('there is no model gateway')),
  rerank: () => Promise.reject(new Error('there is no model gateway')),
  models: () => Promise.reject(new Error('there is no model gateway')),
  close: async () => {},
}
