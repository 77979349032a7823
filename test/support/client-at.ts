import type { Answer } from './client.ts'
import { Client } from './client.ts'
import { Operation } from './clients/operations.ts'

/** A client of another API than the stack's: of a server that a test has started. */
export class ClientAt extends Client {
  readonly #url: string

  constructor(url: string, token: string) {
    super(token)
    this.#url = url
  }

  override ask(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<Answer> {
    return super.ask(method, new URL(path, this.#url).href, body, headers)
  }

  /** The operation of an accepted request. */
  operationOf({ headers }: Answer): Operation {
    return new Operation(this, headers.get('operation-location') ?? '')
  }
}
