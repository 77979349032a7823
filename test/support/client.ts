import { setTimeout as delay } from 'node:timers/promises'
import { newId } from '../../lib/ids.ts'
import { plant } from './planted.ts'
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
  host_id: string | null
  started_at: string | null
  ports: { container_port: number; host_address: string; host_port: number }[]
  pending_changes: string[]
}

/** A disk as the API shows it: what tests read of it. */
export interface DiskBody extends Json {
  id: string
  name: string
  status: string
  status_reason: string | null
  operation_id: string | null
  host_id: string
  size_gib: number
  attached_to: { kind: string; id: string; mount_path: string; read_only: boolean } | null
  condition: string
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
  const read: Answer = {
    status: answer.status,
    headers: answer.headers,
    body: (isJson ? JSON.parse(text) : { text }) as Json,
  }
  plant(token, body, read)
  return read
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

/** The same as a microVM. */
export const sleepingGuest = (over: Json = {}): Json => ({
  ...sleeper({ cpu_cores: 1, memory_mib: 64, root_disk_gib: 1 }),
  ...over,
})

/** A small VM, which takes half a minute to be up. */
export const smallVm = (over: Json = {}): Json => ({
  name: `test-${newId().slice(-12)}`,
  image: 'debian-12',
  cpu_cores: 1,
  memory_mib: 512,
  root_disk_gib: 3,
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

  readonly containers = this.#instances('containers', sleeper)

  readonly microvms = {
    ...this.#machines('microvms', sleepingGuest),
    fork: (id: string, over: Json = {}) =>
      this.begin('POST', `/api/v1/microvms/${id}/fork`, { name: `test-${newId().slice(-12)}`, ...over }),
  }

  readonly vms = this.#machines('vms', smallVm)

  /** What microVMs and VMs have. */
  #machines(plural: string, fresh: (over: Json) => Json) {
    const path = `/api/v1/${plural}`
    return {
      ...this.#instances(plural, fresh),
      reboot: (id: string, body: Json = { grace_sec: 5 }) => this.begin('POST', `${path}/${id}/reboot`, body),
      suspend: (id: string) => this.begin('POST', `${path}/${id}/suspend`),
      resume: (id: string) => this.begin('POST', `${path}/${id}/resume`),
    }
  }

  /** What every kind of instance has; `fresh`: the body of a small one, with what is given instead. */
  #instances(plural: string, fresh: (over: Json) => Json) {
    const path = `/api/v1/${plural}`
    const get = (id: string) => this.get<ContainerBody>(`${path}/${id}`)
    const create = (over: Json = {}, headers?: Record<string, string>) =>
      this.begin('POST', path, fresh(over), headers)
    return {
      create,
      /** Created, and its operation ended well. */
      make: async (over: Json = {}, withinMs?: number): Promise<ContainerBody> => {
        const { id, operation } = await create(over)
        await operation.success(withinMs)
        return get(id)
      },
      get,
      update: (id: string, changes: Json) => this.begin('PUT', `${path}/${id}`, changes),
      start: (id: string) => this.begin('POST', `${path}/${id}/start`),
      stop: (id: string, body: Json = { grace_sec: 0 }) => this.begin('POST', `${path}/${id}/stop`, body),
      reschedule: (id: string, body: Json = { grace_sec: 0 }) =>
        this.begin('POST', `${path}/${id}/reschedule`, body),
      delete: (id: string) => this.begin('DELETE', `${path}/${id}`),
      attach: (id: string, disk_id: string, mount_path = '/data', more: Json = {}) =>
        this.begin('POST', `${path}/${id}/disks`, { disk_id, mount_path, ...more }),
      detach: (id: string, disk_id: string) => this.begin('DELETE', `${path}/${id}/disks/${disk_id}`),
      activity: async (id: string) =>
        (await this.get<{ items: Json[] }>(`${path}/${id}/activity?order=asc`)).items,
    }
  }

  readonly disks = {
    create: (over: Json = {}) =>
      this.begin('POST', '/api/v1/disks', { name: `test-${newId().slice(-12)}`, size_gib: 1, ...over }),
    /** Created, and its operation ended well. */
    make: async (over: Json = {}): Promise<DiskBody> => {
      const { id, operation } = await this.disks.create(over)
      await operation.success()
      return this.disks.get(id)
    },
    get: (id: string) => this.get<DiskBody>(`/api/v1/disks/${id}`),
    update: (id: string, changes: Json) => this.begin('PUT', `/api/v1/disks/${id}`, changes),
    delete: (id: string) => this.begin('DELETE', `/api/v1/disks/${id}`),
    snapshot: (id: string, name: string) => this.begin('POST', `/api/v1/disks/${id}/snapshots`, { name }),
    snapshots: async (id: string) =>
      (await this.get<{ items: Json[] }>(`/api/v1/disks/${id}/snapshots?order=asc`)).items,
    removeSnapshot: (id: string, name: string) =>
      this.begin('DELETE', `/api/v1/disks/${id}/snapshots/${name}`),
    /** `id` is the new disk's. */
    restore: async (id: string, name: string): Promise<Accepted> => {
      const accepted = await this.begin('POST', `/api/v1/disks/${id}/snapshots/${name}/restore`)
      return { ...accepted, id: String(accepted.body['new_disk_id']) }
    },
    migrate: (id: string, target_host_id: string, more: Json = {}) =>
      this.begin('POST', `/api/v1/disks/${id}/migrate`, { target_host_id, ...more }),
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
  async end(withinMs = 120_000): Promise<OperationBody> {
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
