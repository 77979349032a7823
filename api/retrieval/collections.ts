import { z } from 'zod'
import type { EmbedderFacts } from '../../drivers/embedders.ts'
import { InvalidInput } from '../../lib/problem.ts'
import {
  acceptCollection,
  acceptCollectionDeletion,
  readyStore,
} from '../../models/retrieval/collection-acceptance.ts'
import {
  collectionNamed,
  RagCollection,
  type RagCollectionDocument,
  ragCollectionStates,
} from '../../models/retrieval/collections.ts'
import { sumsOf } from '../../models/retrieval/documents.ts'
import type { Embeddings } from '../../models/retrieval/embeddings.ts'
import { answered } from '../../models/retrieval/problems.ts'
import type { RagStoreDocument } from '../../models/retrieval/stores.ts'
import { accepting } from '../accept.ts'
import { forced, Id, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
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
    id: z.string().describe('Its name, and the begin of its hash'),
    name: z.string(),
    hash: z.string().describe('SHA-256 of all that decides about its vectors'),
    dimensions: z.int(),
    most_tokens: z.int().describe('Of the longest text that it reads'),
  })
  .meta({ id: 'RagEmbedder' })

const CollectionView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    name: z.string(),
    status: z.enum(ragCollectionStates.all),
    status_reason: z.string().nullable().describe('Why the last operation failed'),
    operation_id: Id.nullable().describe('The open operation'),
    embedder: EmbedderView,
    metadata_schema: MetadataSchema,
    documents: z.int(),
    chunks: z.int().describe('In the index'),
    bytes: z.int().describe('Of the documents as they were uploaded last'),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'RagCollection' })
type View = z.output<typeof CollectionView>

const none = { documents: 0, chunks: 0, bytes: 0 }

const toView = (
  collection: RagCollectionDocument,
  sums: Pick<View, 'documents' | 'chunks' | 'bytes'> = none,
): View => {
  const { id, name, hash, dimensions, most_tokens } = collection.embedder
  return {
    id: collection._id,
    tenant_id: collection.tenant_id,
    name: collection.name,
    status: collection.status,
    status_reason: collection.status_reason,
    operation_id: collection.operation_id,
    embedder: { id, name, hash, dimensions, most_tokens },
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
    summary: 'Make a collection of documents that are searched together',
    body: z.strictObject({
      name: CollectionName.describe('Unique in the tenant'),
      embedder: z
        .string()
        .max(200)
        .optional()
        .describe('The name or id of one of the platform’s embedders; it stays. Default: the first'),
      metadata_schema: MetadataSchema.default({}),
    }),
    responses: { 202: CollectionView },
    async handle({ caller, body: { name, embedder: asked, metadata_schema } }) {
      const embedder = await embedderOf(embeddings, await readyStore(caller), asked)
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
    method: 'DELETE',
    path: `${path}/{name}`,
    permission: 'rag:delete',
    summary: 'Delete a collection that nothing searches, with its documents',
    params: byName,
    query: forced,
    responses: { 202: CollectionView },
    handle: ({ caller, params: { name }, query }) =>
      accepting(caller, toView, (by) => acceptCollectionDeletion(by, name, query)),
  }),
]

const answersWithinMs = 10_000

/** Throws InvalidInput, and Unavailable if the model gateway does not answer. */
async function embedderOf(
  embeddings: Embeddings,
  { _id: id, tenant_id }: RagStoreDocument,
  asked: string | undefined,
): Promise<EmbedderFacts> {
  // On the store's account: there may be no collection in the end.
  const purpose = { kind: 'collection' as const, id }
  const signal = AbortSignal.timeout(answersWithinMs)
  const models = await answered(embeddings.models({ tenant_id, purpose, signal }))
  const found = models.find((one) => asked === undefined || one.id === asked || one.name === asked)
  if (found) return found
  const names = models.map(({ name }) => name).join(', ')
  throw new InvalidInput(422, [{ pointer: '/embedder', message: `is none of the platform’s: ${names}` }])
}

/** For documents about the API, which need no platform that runs. */
export const noEmbeddings: Embeddings = {
  embed: () => Promise.reject(new Error('there is no model gateway')),
  models: () => Promise.reject(new Error('there is no model gateway')),
  close: async () => {},
}
