import { type ErrorCode, problems, StoreError } from './errors.ts'
import { checkCollectionName, checkDocumentId } from './input.ts'
import type * as types from './store.ts'
import { writeAside, writeDocument, writeQuery } from './wire.ts'

/** Of an answer: its status, and all of its body. */
export interface Said {
  status: number
  said: string
}

/** Sends a request to the store, with the body as JSON, and reads the answer. Throws StoreError `unavailable` if there is none. */
export type Send = (method: string, path: string, body?: object) => Promise<Said>

/** A store behind server.ts. Beside the store's errors, `unavailable` says that there was no answer. */
export class StoreClient implements types.Store {
  readonly #send: Send

  constructor(send: Send) {
    this.#send = send
  }

  async createCollection(name: string, spec: types.CollectionSpec): Promise<types.CollectionStats> {
    return this.#ask('PUT', pathOf(name), spec)
  }

  async dropCollection(name: string): Promise<void> {
    return this.#ask('DELETE', pathOf(name))
  }

  async replaceDocument(
    collection: string,
    embedder: types.Embedder,
    document: types.Document,
  ): Promise<types.Replaced> {
    return this.#ask('PUT', pathOf(collection, document.id), writeDocument(embedder, document))
  }

  async deleteDocument(collection: string, id: string, version: number): Promise<void> {
    return this.#ask('DELETE', `${pathOf(collection, id)}?version=${version}`)
  }

  async search(collection: string, query: types.SearchQuery): Promise<types.SearchAnswer> {
    return this.#ask('POST', `${pathOf(collection)}/search`, writeQuery(query))
  }

  async putAside(
    collection: string,
    embedder: types.Embedder,
    vectors: types.AsideVector[],
    most: number,
  ): Promise<types.Aside> {
    return this.#ask('POST', `${pathOf(collection)}/aside`, writeAside(embedder, vectors, most))
  }

  async useEmbedder(collection: string, embedder: types.Embedder): Promise<types.Used> {
    return this.#ask('PUT', `${pathOf(collection)}/embedder`, { embedder })
  }

  async stats(collection: string): Promise<types.CollectionStats> {
    return this.#ask('GET', pathOf(collection))
  }

  async snapshot(collection: string): Promise<types.Snapshot> {
    return this.#ask('POST', `${pathOf(collection)}/snapshot`)
  }

  /** A store that does not answer is not ready. */
  async health(): Promise<types.Health> {
    try {
      return await this.#ask('GET', '/health')
    } catch (error) {
      return { ready: false, reason: (error as Error).message }
    }
  }

  async #ask<T>(method: string, path: string, body?: object): Promise<T> {
    const { status, said } = await this.#send(method, path, body)
    if (status === 204) return undefined as T
    let answer: unknown
    try {
      answer = JSON.parse(said)
    } catch {
      throw new StoreError('unavailable', `The store answered ${status} without JSON`)
    }
    if (status === 200) return answer as T
    throw errorIn(answer as Problem)
  }
}

/** Throws `invalid_input`: a URL with a name like `..` would be that of another resource. */
function pathOf(collection: string, document?: string): string {
  checkCollectionName(collection)
  if (document === undefined) return `/collections/${collection}`
  checkDocumentId(document)
  return `/collections/${collection}/documents/${document}`
}

interface Problem {
  code?: string
  detail?: string
  errors?: { pointer: string }[]
}

function errorIn({ code = '', detail, errors }: Problem): StoreError {
  const known = Object.hasOwn(problems, code) ? (code as ErrorCode) : 'unavailable'
  return new StoreError(known, detail ?? 'The store refused', { pointer: errors?.[0]?.pointer ?? null })
}
