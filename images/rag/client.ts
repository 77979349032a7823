import { request as plainRequest } from 'node:http'
import { Agent, request as secureRequest } from 'node:https'
import { text } from 'node:stream/consumers'
import { type ErrorCode, problems, StoreError } from './errors.ts'
import { checkCollectionName, checkDocumentId } from './input.ts'
import type * as types from './store.ts'
import { writeDocument, writeQuery } from './wire.ts'

export interface ClientSettings {
  /** `https://10.0.0.5:8700`. */
  url: string
  token: string
  /** The authority of the store's certificate, PEM. */
  ca?: string
  /** Longer than the largest document takes. */
  timeoutMs: number
}

/** A store behind server.ts. Beside the store's errors, `unavailable` says that there was no answer. */
export class StoreClient implements types.Store {
  readonly #settings: ClientSettings
  readonly #agent: Agent | undefined

  constructor(settings: ClientSettings) {
    this.#settings = settings
    this.#agent = settings.url.startsWith('https:')
      ? new Agent({ keepAlive: true, ...(settings.ca && { ca: settings.ca }) })
      : undefined
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

  close(): void {
    this.#agent?.destroy()
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

  #send(method: string, path: string, body?: object): Promise<{ status: number; said: string }> {
    const { url, token, timeoutMs } = this.#settings
    const send = this.#agent ? secureRequest : plainRequest
    return new Promise((resolve, reject) => {
      const fail = (cause: unknown) =>
        reject(new StoreError('unavailable', 'The store does not answer', { cause }))
      const bytes = body && Buffer.from(JSON.stringify(body))
      const request = send(new URL(path, url), {
        method,
        agent: this.#agent,
        headers: {
          authorization: `Bearer ${token}`,
          ...(bytes && { 'content-type': 'application/json', 'content-length': bytes.length }),
        },
        signal: AbortSignal.timeout(timeoutMs),
      })
      request.on('error', fail)
      request.on('response', (response) => {
        text(response).then((said) => resolve({ status: response.statusCode ?? 0, said }), fail)
      })
      request.end(bytes)
    })
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
