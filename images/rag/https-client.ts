import { request as plainRequest } from 'node:http'
import { Agent, request as secureRequest } from 'node:https'
import { text } from 'node:stream/consumers'
import { type Send, StoreClient } from './client.ts'
import { StoreError } from './errors.ts'

export interface HttpsSettings {
  /** `https://10.0.0.5:8700`. */
  url: string
  token: string
  /** The authority of the store's certificate, PEM. */
  ca?: string
  /** Longer than the largest document takes. */
  timeoutMs: number
}

/** A store at a URL, reached with its token. */
export class HttpsClient extends StoreClient {
  readonly #agent: Agent | undefined

  constructor(settings: HttpsSettings) {
    const agent = settings.url.startsWith('https:')
      ? new Agent({ keepAlive: true, ...(settings.ca && { ca: settings.ca }) })
      : undefined
    super(sendTo(settings, agent))
    this.#agent = agent
  }

  close(): void {
    this.#agent?.destroy()
  }
}

const sendTo =
  ({ url, token, timeoutMs }: HttpsSettings, agent: Agent | undefined): Send =>
  (method, path, body) =>
    new Promise((resolve, reject) => {
      const fail = (cause: unknown) =>
        reject(new StoreError('unavailable', 'The store does not answer', { cause }))
      const bytes = body && Buffer.from(JSON.stringify(body))
      const send = agent ? secureRequest : plainRequest
      const request = send(new URL(path, url), {
        method,
        agent,
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
