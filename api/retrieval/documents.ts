import { z } from 'zod'
import { InvalidInput } from '../../lib/problem.ts'
import { collectionNamed } from '../../models/retrieval/collections.ts'
import {
  acceptDocumentDeletion,
  acceptRetry,
  acceptUpload,
  type Upload,
} from '../../models/retrieval/document-acceptance.ts'
import { documentTypes, typeByName } from '../../models/retrieval/document-types.ts'
import {
  documentIn,
  documentStages,
  RagDocument,
  type RagDocumentDocument,
  ragDocumentStates,
} from '../../models/retrieval/documents.ts'
import { accepting, acceptingOrThere } from '../accept.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { byName, path as collectionsPath } from './collections.ts'

const path = `${collectionsPath}/{name}/documents`
const byDocument = byName.extend({ docId: Id })
const mostMib = 16

export const Metadata = z.record(z.string(), z.union([z.string(), z.number(), z.boolean()]))

const DocumentView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    collection_id: Id,
    name: z.string(),
    type: z.enum(documentTypes),
    metadata: Metadata,
    size_bytes: z.int(),
    content_hash: z.string().describe('SHA-256 of the content'),
    status: z.enum(ragDocumentStates.all),
    status_reason: z.string().nullable().describe('Why the last upload failed'),
    operation_id: Id.nullable().describe('The open operation'),
    stage: z.enum(documentStages).describe('Where the last upload is on its way into the index'),
    failed_stage: z.enum(documentStages).nullable().describe('Where it failed; a retry begins there'),
    version: z.int().describe('Of the last upload'),
    indexed_version: z.int().nullable().describe('The version that searches find; null: none yet'),
    chunks_to_embed: z.int().nullable().describe('Chunks of the last upload without a vector at its begin'),
    chunks_embedded: z.int().describe('Those of them that have one now'),
    chunks: z.int().nullable().describe('In the index'),
    tokens: z.int().nullable().describe('Of the chunks in the index'),
    pages: z.int().nullable().describe('Of a PDF in the index'),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'RagDocument' })

const toView = (document: RagDocumentDocument): z.output<typeof DocumentView> => ({
  id: document._id,
  tenant_id: document.tenant_id,
  collection_id: document.collection_id,
  name: document.name,
  type: document.type,
  metadata: document.metadata,
  size_bytes: document.size_bytes,
  content_hash: document.content_hash,
  status: document.status,
  status_reason: document.status_reason,
  operation_id: document.operation_id,
  stage: document.stage,
  failed_stage: document.failed_stage,
  version: document.version,
  indexed_version: document.indexed_version,
  chunks_to_embed: document.chunks_to_embed,
  chunks_embedded: document.chunks_embedded,
  chunks: document.chunks,
  tokens: document.tokens,
  pages: document.pages,
  created_at: time(document.created_at),
  updated_at: time(document.updated_at),
})

const NewDocument = z
  .strictObject({
    name: z
      .string()
      .min(1)
      .max(255)
      // oxlint-disable-next-line no-control-regex -- they are what a name must not have
      .regex(/^[^\u0000-\u001F\u007F]*$/, 'must have no control characters')
      .describe('Unique in the collection: the same name again replaces the document'),
    type: z.enum(documentTypes).optional().describe('Default: by the end of the name, such as `.pdf`'),
    content: z
      .string()
      .max(mostMib * 1024 ** 2)
      .optional()
      .describe('Text, of all types but `pdf`'),
    content_base64: z
      .base64()
      .max(Math.ceil((mostMib * 4) / 3) * 1024 ** 2)
      .optional()
      .describe(`At most ${mostMib} MiB`),
    metadata: Metadata.default({}).describe('Values of fields that the collection’s metadata schema has'),
  })
  .refine(
    ({ content, content_base64 }) => (content === undefined) !== (content_base64 === undefined),
    'either content or content_base64',
  )

/** Throws InvalidInput. */
function uploadOf({
  name,
  type = typeByName(name),
  content,
  content_base64,
  metadata,
}: z.output<typeof NewDocument>): Upload {
  if (!type) throw invalid('/type', 'is needed: the name does not end with a known type')
  const given_as = content === undefined ? 'content_base64' : 'content'
  if (content !== undefined && !content.isWellFormed()) throw invalid('/content', 'is not text in Unicode')
  const bytes = content === undefined ? Buffer.from(content_base64 ?? '', 'base64') : Buffer.from(content)
  if (bytes.length > mostMib * 1024 ** 2) throw invalid(`/${given_as}`, `has more than ${mostMib} MiB`)
  return { name, type, metadata, content: bytes, given_as }
}

const invalid = (pointer: string, message: string) => new InvalidInput(422, [{ pointer, message }])

/** The HTTP operations on documents of retrieval. */
export const ragDocuments = [
  list({
    path,
    permission: 'rag:read',
    summary: 'List the documents of a collection',
    params: byName,
    model: RagDocument,
    view: DocumentView,
    toView,
    scope: async (caller, { name }) => {
      const { _id: collection_id, tenant_id } = await collectionNamed(caller, name)
      return { tenant_id, collection_id }
    },
  }),

  operation({
    method: 'POST',
    path,
    permission: 'rag:create',
    summary: 'Upload a document, or new content for one; the same content and metadata change nothing',
    params: byName,
    body: NewDocument,
    json_kib: (mostMib * 4 * 1024) / 3 + 64,
    responses: { 200: DocumentView, 202: DocumentView },
    async handle({ caller, params: { name }, body }) {
      await collectionNamed(caller, name)
      const upload = uploadOf(body)
      return acceptingOrThere(caller, toView, (by) => acceptUpload(by, name, upload))
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{docId}`,
    permission: 'rag:read',
    summary: 'Get a document: its stage, and what of it is in the index',
    params: byDocument,
    responses: { 200: DocumentView },
    handle: async ({ caller, params: { name, docId } }) =>
      toView(await documentIn(await collectionNamed(caller, name), docId)),
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{docId}`,
    permission: 'rag:delete',
    summary: 'Delete a document, its texts and its vectors; an upload under way ends',
    params: byDocument,
    responses: { 202: DocumentView },
    handle: ({ caller, params: { name, docId } }) =>
      accepting(caller, toView, (by) => acceptDocumentDeletion(by, name, docId)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{docId}/retry`,
    permission: 'rag:create',
    summary: 'Go on with an upload that failed or was cancelled, at the stage where it stopped',
    params: byDocument,
    responses: { 202: DocumentView },
    handle: ({ caller, params: { name, docId } }) =>
      accepting(caller, toView, (by) => acceptRetry(by, name, docId)),
  }),
]
