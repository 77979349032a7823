import { createHash } from 'node:crypto'
import { newId } from '../../../lib/ids.ts'
import type { Answer, Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'
import { uploadAt } from './uploads.ts'

export interface EmbedderBody extends Json {
  id: string
  name: string
  hash: string
  dimensions: number
  connector_id: string | null
}

/** The fields of a collection that tests read from the API. */
export interface CollectionBody extends Json {
  id: string
  name: string
  status: string
  status_reason: string | null
  operation_id: string | null
  embedder: EmbedderBody
  next_embedder: EmbedderBody | null
  documents: number
  chunks: number
}

/** The fields of a document that tests read from the API. */
export interface DocumentBody extends Json {
  id: string
  name: string
  status: string
  status_reason: string | null
  operation_id: string | null
  stage: string
  failed_stage: string | null
  version: number
  indexed_version: number | null
  chunks_embedded: number
  chunks: number | null
  tokens: number | null
  pages: number | null
  upload: { url: string | null; size_bytes: number; received_bytes: number } | null
}

/** A hit of a search. */
export interface HitBody extends Json {
  document: { id: string; name: string }
  text: string
  headings: string[]
  locator: Json
  score: number
}

const root = '/api/v1/rag/collections'

/** The collections of a tenant. */
export const collectionsOf = (caller: Caller) => ({
  ask: (body: Json): Promise<Answer> => caller.ask('POST', root, body),
  /** The request must be accepted. */
  create: (over: Json = {}): Promise<Accepted> =>
    caller.begin('POST', root, { name: `docs-${newId().slice(-12)}`, ...over }),
  get: (name: string): Promise<CollectionBody> => caller.get<CollectionBody>(`${root}/${name}`),
  list: async (query = '') =>
    (await caller.get<{ items: CollectionBody[]; total: number }>(`${root}${query}`)).items,
  askEmbedder: (name: string, embedder: unknown): Promise<Answer> =>
    caller.ask('PUT', `${root}/${name}`, { embedder }),
  /** The request must be accepted. */
  embedBy: (name: string, embedder: unknown): Promise<Accepted> =>
    caller.begin('PUT', `${root}/${name}`, { embedder }),
  delete: (name: string): Promise<Accepted> => caller.begin('DELETE', `${root}/${name}`),
})

/** What a content that is sent in parts is announced by. */
export const announced = (content: Buffer) => ({
  size_bytes: content.length,
  sha256: createHash('sha256').update(content).digest('hex'),
})

/** The documents of a collection. */
export function documentsOf(caller: Caller, collection: string) {
  const path = `${root}/${collection}/documents`
  const documents = {
    ask: (body: Json): Promise<Answer> => caller.ask('POST', path, body),
    /** The request must be accepted. */
    upload: (name: string, content: string | Buffer, over: Json = {}): Promise<Accepted> =>
      caller.begin('POST', path, {
        name,
        ...(typeof content === 'string' ? { content } : { content_base64: content.toString('base64') }),
        ...over,
      }),
    /** Must succeed. */
    async make(name: string, content: string | Buffer, over: Json = {}): Promise<DocumentBody> {
      const { id, operation } = await documents.upload(name, content, over)
      await operation.success()
      return documents.get(id)
    },
    /** Announces a content that is to be sent in parts; must be accepted. */
    async announce(name: string, content: Buffer, over: Json = {}) {
      const accepted = await caller.begin('POST', path, { name, upload: announced(content), ...over })
      const { url } = accepted.body['upload'] as { url: string }
      return { ...accepted, url, sent: uploadAt(url) }
    },
    get: (id: string): Promise<DocumentBody> => caller.get<DocumentBody>(`${path}/${id}`),
    list: async (query = '') =>
      (await caller.get<{ items: DocumentBody[]; total: number }>(`${path}${query}`)).items,
    retry: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/retry`),
    delete: (id: string): Promise<Accepted> => caller.begin('DELETE', `${path}/${id}`),
    /** With the snapshots that may have it. */
    purge: (id: string): Promise<Accepted> => caller.begin('DELETE', `${path}/${id}?purge=true`),
    askSearch: (body: Json): Promise<Answer> => caller.ask('POST', `${root}/${collection}/search`, body),
    /** The hits; must succeed. */
    async search(query: string, over: Json = {}): Promise<HitBody[]> {
      const { status, body } = await documents.askSearch({ query, ...over })
      if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`)
      return body['hits'] as HitBody[]
    },
  }
  return documents
}
