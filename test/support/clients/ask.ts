import { plant } from '../planted.ts'
import { facts } from '../stack.ts'

export type Json = Record<string, unknown>

export interface Answer {
  status: number
  headers: Headers
  body: Json
}

/** Sends one request. A `body` that is a string or bytes is sent unchanged, else as JSON. */
export async function ask(
  method: string,
  path: string,
  {
    token,
    body,
    headers = {},
    signal = null,
    headOnly = false,
  }: {
    token?: string | undefined
    body?: unknown
    headers?: Record<string, string>
    signal?: AbortSignal | null
    /** For endless streams: does not read the body. */
    headOnly?: boolean
  } = {},
): Promise<Answer> {
  const raw = typeof body === 'string' || body instanceof Uint8Array
  const answer = await fetch(new URL(path, facts().api_url), {
    method,
    signal,
    headers: {
      ...(token ? { authorization: `Bearer ${token}` } : {}),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: raw ? (body as string) : JSON.stringify(body) }),
  })
  if (headOnly && answer.ok) {
    await answer.body?.cancel()
    return { status: answer.status, headers: answer.headers, body: {} }
  }
  const text = await answer.text()
  const isJson = /^application\/(problem\+)?json/.test(answer.headers.get('content-type') ?? '')
  const read: Answer = {
    status: answer.status,
    headers: answer.headers,
    body: (isJson ? JSON.parse(text) : { text }) as Json,
  }
  plant(token, body, read)
  return read
}
