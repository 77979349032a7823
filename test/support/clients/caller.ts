import { ask, type Answer, type Json } from './ask.ts'
import type { ContainerBody } from './containers.ts'
import { Operation } from './operations.ts'

/** Calls the API with a token. */
export class Caller {
  readonly token: string

  constructor(token: string) {
    this.token = token
  }

  ask(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer> {
    return ask(method, path, { token: this.token, body, ...(headers ? { headers } : {}) })
  }

  /** The body of a GET, which must succeed. */
  async get<T = Json>(path: string): Promise<T> {
    const answer = await this.ask('GET', path)
    if (answer.status !== 200)
      throw new Error(`GET ${path} -> ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body as T
  }

  /** Sends a request that must be accepted; returns the resource's id and the operation. */
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
}

export interface Accepted {
  id: string
  body: ContainerBody
  operation: Operation
}
