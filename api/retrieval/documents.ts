import { z } from 'zod'
import { InvalidInput } from '../../lib/problem.ts'
import { collectionNamed } from '../../models/retrieval/collections.ts'
import {
  acceptDocumentDeletion,
  acceptRetry,
  acceptUpload,
  type Upload,
  type WholeUpload,
} from '../../models/retrieval/document-acceptance.ts'
import { documentTypes, typeByName } from '../../models/retrieval/document-types.ts'
import {
  documentIn,
  documentStages,
  RagDocument,
  type RagDocumentDocument,
  ragDocumentStates,
} from '../../models/retrieval/documents.ts'
import { acceptAnnounced, uploadAtMost } from '../../models/retrieval/uploads.ts'
import { accepting, acceptingOrThere } from '../accept.ts'
import { Id, PlainText, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { byName, path as collectionsPath } from './collections.ts'

const path = `${collectionsPath}/{name}/documents`
const byDocument = byName.extend({ docId: Id })
const mostMib = 16

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 in hex')

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
    stage: z.enum(documentStages).describe('The stage of the last upload on its way into the index'),
    failed_stage: z.enum(documentStages).nullable().describe('The stage that failed; a retry begins there'),
    version: z.int().describe('The version of the last upload'),
    indexed_version: z.int().nullable().describe('The version that searches find; null: none yet'),
    chunks_to_embed: z.int().nullable().describe('Chunks of the last upload that had no vector at its start'),
    chunks_embedded: z.int().describe('How many of these chunks have a vector now'),
    chunks: z.int().nullable().describe('Chunks in the index'),
    tokens: z.int().nullable().describe('Tokens of the chunks in the index'),
    pages: z.int().nullable().describe('Pages of a PDF in the index'),
    upload: z
      .strictObject({
        url: z
          .string()
          .nullable()
          .describe('The URL to which to send the content. It needs no other token, and is shown only once'),
        size_bytes: z.int(),
        received_bytes: z.int(),
        expires_at: Timestamp,
      })
      .nullable()
      .describe(
        'Content that is being sent in parts; the document does not change until all of it has arrived',
      ),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'RagDocument' })

const toView = (
  document: RagDocumentDocument,
  upload_url: string | null = null,
): z.output<typeof DocumentView> => ({
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
  upload: document.upload && {
    url: upload_url,
    size_bytes: document.upload.size_bytes,
    received_bytes: document.upload.received,
    expires_at: time(document.upload.expires_at),
  },
  created_at: time(document.created_at),
  updated_at: time(document.updated_at),
})

const NewDocument = z
  .strictObject({
    name: PlainText.min(1)
      .max(255)
      .describe('Unique in the collection: the same name again replaces the document'),
    type: z
      .enum(documentTypes)
      .optional()
      .describe('Default: from the extension of the name, such as `.pdf`'),
    content: z
      .string()
      .max(mostMib * 1024 ** 2)
      .optional()
      .describe('The text, for all types except `pdf`'),
    content_base64: z
      .base64()
      .max(Math.ceil((mostMib * 4) / 3) * 1024 ** 2)
      .optional()
      .describe(`The content in base64, at most ${mostMib} MiB`),
    upload: z
      .strictObject({ size_bytes: z.int().min(1).max(uploadAtMost), sha256: Sha256 })
      .optional()
      .describe('Content of at most 256 MiB, which is sent in parts to `upload.url` within a day'),
    metadata: Metadata.default({}).describe('Values for fields of the collection’s metadata schema'),
  })
  .refine(
    ({ content, content_base64, upload }) =>
      [content, content_base64, upload].filter((one) => one !== undefined).length === 1,
    'must have one of content, content_base64 and upload',
  )
type NewDocument = z.output<typeof NewDocument>

/** Throws InvalidInput. */
function namedBy({ name, type = typeByName(name), metadata }: NewDocument) {
  if (!type) throw invalid('/type', 'is required: the name does not end with a known type')
  return { name, type, metadata }
}

/** Throws InvalidInput. */
function wholeUpload(body: NewDocument): WholeUpload {
  const named = namedBy(body)
  const { content, content_base64 } = body
  const given_as = content === undefined ? 'content_base64' : 'content'
  if (content !== undefined && !content.isWellFormed()) throw invalid('/content', 'is not Unicode text')
  const bytes = content === undefined ? Buffer.from(content_base64 ?? '', 'base64') : Buffer.from(content)
  if (bytes.length > mostMib * 1024 ** 2) throw invalid(`/${given_as}`, `has more than ${mostMib} MiB`)
  return { ...named, content: bytes, given_as }
}

const invalid = (pointer: string, message: string) => new InvalidInput(422, [{ pointer, message }])

/** The HTTP operations on documents of retrieval. */
export const makeRagDocuments = ({ apiUrl }: OperationsContext) => [
  list({
    path,
    permission: 'rag:read',
    summary: 'List the documents of a collection',
    params: byName,
    model: RagDocument,
    view: DocumentView,
    toView: (document: RagDocumentDocument) => toView(document),
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
      if (body.upload) {
        const { size_bytes, sha256: content_hash } = body.upload
        const announced: Upload = { ...namedBy(body), size_bytes, content_hash }
        let url: string | null = null
        return acceptingOrThere(
          caller,
          (document: RagDocumentDocument) => toView(document, url),
          async (by) => {
            const { token, ...accepted } = await acceptAnnounced(by, name, announced)
            if (token !== undefined) url = `${apiUrl}/api/v1/uploads/${accepted.document._id}?token=${token}`
            return accepted
          },
        )
      }
      const upload = wholeUpload(body)
      return acceptingOrThere(caller, toView, (by) => acceptUpload(by, name, upload))
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{docId}`,
    permission: 'rag:read',
    summary: 'Get a document, its stage, and what the index has of it',
    params: byDocument,
    responses: { 200: DocumentView },
    handle: async ({ caller, params: { name, docId } }) =>
      toView(await documentIn(await collectionNamed(caller, name), docId)),
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{docId}`,
    permission: 'rag:delete',
    summary: 'Delete a document, its texts and its vectors, and end an upload in progress',
    params: byDocument,
    query: z.strictObject({
      purge: z
        .enum(['true', 'false'])
        .default('false')
        .transform((text) => text === 'true')
        .describe(
          'Also remove the store’s snapshots that may contain the document: all since its first upload',
        ),
    }),
    responses: { 202: DocumentView },
    handle: ({ caller, params: { name, docId }, query }) =>
      accepting(caller, toView, (by) => acceptDocumentDeletion(by, name, docId, query)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{docId}/retry`,
    permission: 'rag:create',
    summary: 'Retry an upload that failed or was cancelled, from the stage where it stopped',
    params: byDocument,
    responses: { 202: DocumentView },
    handle: ({ caller, params: { name, docId } }) =>
      accepting(caller, toView, (by) => acceptRetry(by, name, docId)),
  }),
]
