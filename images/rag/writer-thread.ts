import { Worker } from 'node:worker_threads'
import { StoreError } from './errors.ts'
import type { Answer, Order, Orders } from './writer.ts'

interface Waiting {
  resolve: (result: never) => void
  reject: (error: unknown) => void
}

/** The thread of writer.ts, as the main thread sees it. */
export class WriterThread {
  readonly #worker: Worker
  readonly #waiting = new Map<number, Waiting>()
  #last = 0
  /** Why the thread takes no more orders. */
  #ended: string | null = null

  /** `onLost`: the thread has ended by itself, and nothing can be written any more. */
  constructor(folder: string, onLost: (reason: string) => void) {
    this.#worker = new Worker(new URL('./writer.ts', import.meta.url), { workerData: { folder } })
    this.#worker.on('message', (answer: Answer) => this.#answer(answer))
    this.#worker.on('error', (error) => this.#lose(error.message))
    this.#worker.on('exit', (code) => this.#lose(`it ended with ${code}`))
    this.#worker.on('error', () => onLost(this.#ended ?? ''))
  }

  /** Rejects with a StoreError, or with an Error that is not the caller's. */
  run<N extends keyof Orders>(order: N, ...args: Parameters<Orders[N]>): Promise<ReturnType<Orders[N]>> {
    if (this.#ended !== null) return Promise.reject(new StoreError('unavailable', 'The store has stopped'))
    const id = ++this.#last
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject })
      this.#worker.postMessage({ id, order, args } satisfies Order, [])
    })
  }

  /** After what was ordered before. */
  async close(): Promise<void> {
    if (this.#ended === null) await this.run('close')
    this.#ended ??= 'it was closed'
    await this.#worker.terminate()
  }

  #answer(answer: Answer): void {
    const waiting = this.#waiting.get(answer.id)
    this.#waiting.delete(answer.id)
    if ('result' in answer) return waiting?.resolve(answer.result as never)
    const { code, message } = answer.error
    waiting?.reject(code ? new StoreError(code, message) : new Error(message))
  }

  #lose(reason: string): void {
    this.#ended ??= reason
    for (const { reject } of this.#waiting.values())
      reject(new StoreError('unavailable', 'The store has stopped'))
    this.#waiting.clear()
  }
}
