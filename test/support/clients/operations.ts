import { setTimeout as delay } from 'node:timers/promises'
import type { Answer, Json } from './ask.ts'
import type { Caller } from './caller.ts'
import { eventually, patienceMs } from '../eventually.ts'
import { pendingSteps } from '../histories.ts'

export interface OperationBody extends Json {
  id: string
  resource_id: string
  verb: string
  state: 'pending' | 'running' | 'succeeded' | 'failed' | 'cancelled'
  step: string | null
  workflow_id: string
  error: { code: string; title: string; detail?: string } | null
}

const isEnd = ({ state }: OperationBody): boolean => state !== 'pending' && state !== 'running'

/** An accepted operation, with ways to wait for its end. */
export class Operation {
  readonly #client: Caller
  readonly path: string

  constructor(client: Caller, path: string) {
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

  hasEnded = async (): Promise<boolean> => isEnd(await this.now())

  /** Waits until it says that it does this, or has ended: a short step may be over before it is seen. */
  says(words: RegExp): Promise<unknown> {
    return eventually(async () => {
      const now = await this.now()
      return words.test(String(now.step)) || isEnd(now)
    })
  }

  /** Resolves with the ended operation. Retries while the API is away, as a good client does. */
  async end(withinMs = patienceMs): Promise<OperationBody> {
    const deadline = Date.now() + withinMs
    for (;;) {
      const left = Math.max(1, Math.min(30, Math.ceil((deadline - Date.now()) / 1000)))
      const answer = await this.#client.ask('GET', `${this.path}?wait=${left}`).catch(() => null)
      const body = answer?.status === 200 ? (answer.body as OperationBody) : null
      if (body && isEnd(body)) return body
      if (answer && answer.status !== 200 && answer.status !== 503)
        throw new Error(`${this.path} -> ${answer.status} ${JSON.stringify(answer.body)}`)
      if (Date.now() > deadline) {
        const pending = body && (await pendingSteps(body.workflow_id).catch(String))
        throw new Error(
          `${this.path} has not ended in ${withinMs} ms: ${JSON.stringify(answer?.body)}; it waits for ${pending}`,
        )
      }
      if (!body) await delay(100)
    }
  }

  /** Resolves with the ended operation, which must have succeeded. */
  async success(withinMs?: number): Promise<OperationBody> {
    const body = await this.end(withinMs)
    if (body.state !== 'succeeded')
      throw new Error(`${body.verb} ${body.state}: ${JSON.stringify(body.error)}`)
    return body
  }
}
