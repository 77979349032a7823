import { setTimeout as delay } from 'node:timers/promises'
import { newId } from '../../lib/ids.ts'
import { facts } from './stack.ts'

export type Json = Record<string, unknown>

export interface Answer {
  status: number
  headers: Headers
  body: Json
}

/** A container as the API shows it: what tests read of it. */
export interface ContainerBody extends Json {
  id: string
  name: string
  status: string
  status_reason: string | null
  operation_id: string | null
  ports: { container_port: number; host_address: string; host_port: number }[]
  pending_changes: string[]
}

export interface OperationBody extends Json {
  id: string
  resource_id: string
  verb: string
  state: 'pending' | 'running' | 'succeeded' | 'failed' | 'cancelled'
  step: string | null
  workflow_id: string
  error: { code: string; title: string; detail?: string } | null
}

/** One request. `body` is sent as it is when it is a string or bytes, else as JSON. */
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
    /** For what goes on without end: its body is not waited for. */
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
  return {
    status: answer.status,
    headers: answer.headers,
    body: (isJson ? JSON.parse(text) : { text }) as Json,
  }
}

/** A small container that sleeps until it is stopped, named like no other. */
export const sleeper = (over: Json = {}): Json => ({
  name: `test-${newId().slice(-12)}`,
  image: 'busybox',
  command: ['sleep', '3600'],
  cpu_cores: 0.1,
  memory_mib: 16,
  ...over,
})

/** A shell command instead. */
export const shell = (script: string, over: Json = {}): Json =>
  sleeper({ command: ['sh', '-c', script], ...over })

/** Somebody who calls the API with a token. */
export class Client {
  readonly token: string

  constructor(token: string) {
    this.token = token
  }

  ask(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer> {
    return ask(method, path, { token: this.token, body, ...(headers ? { headers } : {}) })
  }

  /** The body of a GET that must succeed. */
  async get<T = Json>(path: string): Promise<T> {
    const answer = await this.ask('GET', path)
    if (answer.status !== 200)
      throw new Error(`GET ${path} -> ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body as T
  }

  /** A request that must be accepted: the resource's id and the operation to follow. */
  async begin(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<Accepted> {
    const answer = await this.ask(method, path, body, headers)
    if (answer.status !== 202)
      throw new Error(`${method} ${path} -> ${answer.status} ${JSON.stringify(answer.body)}`)
    const location = answer.headers.get('operation-location') ?? ''
    return {
      id: String(answer.body['id']),
      body: answer.body as ContainerBody,
      operation: new Operation(this, location),
    }
  }

  readonly containers = {
    create: (over: Json = {}, headers?: Record<string, string>) =>
      this.begin('POST', '/api/v1/containers', sleeper(over), headers),
    /** Created, and its operation ended well. */
    make: async (over: Json = {}): Promise<ContainerBody> => {
      const { id, operation } = await this.containers.create(over)
      await operation.success()
      return this.containers.get(id)
    },
    get: (id: string) => this.get<ContainerBody>(`/api/v1/containers/${id}`),
    update: (id: string, changes: Json) => this.begin('PUT', `/api/v1/containers/${id}`, changes),
    start: (id: string) => this.begin('POST', `/api/v1/containers/${id}/start`),
    stop: (id: string, body: Json = { grace_sec: 0 }) =>
      this.begin('POST', `/api/v1/containers/${id}/stop`, body),
    delete: (id: string) => this.begin('DELETE', `/api/v1/containers/${id}`),
    activity: async (id: string) =>
      (await this.get<{ items: Json[] }>(`/api/v1/containers/${id}/activity?order=asc`)).items,
  }
}

export interface Accepted {
  id: string
  body: ContainerBody
  operation: Operation
}

/** An accepted operation, and its end. */
export class Operation {
  readonly #client: Client
  readonly path: string

  constructor(client: Client, path: string) {
    this.#client = client
    this.path = path
  }

  get id(): string {
    return this.path.split('/').at(-1) ?? ''
  }
  now(): Promise<OperationBody> {
    return this.#client.get<OperationBody>(this.path)
  }
  cancel(): Promise<Answer> {
    return this.#client.ask('POST', `${this.path}/cancel`)
  }

  /** The operation once it has ended. An API that is away meanwhile is asked again, as a good client does. */
  async end(withinMs = 60_000): Promise<OperationBody> {
    const deadline = Date.now() + withinMs
    for (;;) {
      const left = Math.max(1, Math.min(30, Math.ceil((deadline - Date.now()) / 1000)))
      const answer = await this.#client.ask('GET', `${this.path}?wait=${left}`).catch(() => null)
      const body = answer?.status === 200 ? (answer.body as OperationBody) : null
      if (body && body.state !== 'pending' && body.state !== 'running') return body
      if (answer && answer.status !== 200 && answer.status !== 503)
        throw new Error(`${this.path} -> ${answer.status} ${JSON.stringify(answer.body)}`)
      if (Date.now() > deadline)
        throw new Error(`${this.path} has not ended in ${withinMs} ms: ${JSON.stringify(answer?.body)}`)
      if (!body) await delay(100)
    }
  }

  /** Its end, which must be a good one. */
  async success(withinMs?: number): Promise<OperationBody> {
    const body = await this.end(withinMs)
    if (body.state !== 'succeeded')
      throw new Error(`${body.verb} ${body.state}: ${JSON.stringify(body.error)}`)
    return body
  }
}
