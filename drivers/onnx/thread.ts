import { Worker } from 'node:worker_threads'
import { EmbedderUnavailable } from '../errors.ts'
import type { EmbedderFiles } from './files.ts'
import type { Answer } from './worker.ts'

/** A thread of worker.ts, which embeds one piece at a time. */
export class EmbedderThread {
  readonly #worker: Worker
  #waiting: PromiseWithResolvers<Answer> | null = null
  /** Why it takes no more pieces. */
  #ended: Error | null = null

  constructor(files: EmbedderFiles, onEnd: () => void) {
    this.#worker = new Worker(new URL('./worker.ts', import.meta.url), { workerData: files })
    this.#worker.unref() // a process that waits for no answer may end
    this.#worker.on('message', (answer: Answer) => this.#settle(({ resolve }) => resolve(answer)))
    this.#worker.on('error', (error) => this.#lose(error))
    this.#worker.on('exit', (code) => this.#lose(new Error(`the thread ended with ${code}`)))
    this.#worker.once('exit', onEnd)
  }

  get hasEnded(): boolean {
    return this.#ended !== null
  }

  /** Rejects with EmbedderUnavailable. */
  run(texts: string[]): Promise<Answer> {
    this.#waiting = Promise.withResolvers<Answer>()
    const { promise } = this.#waiting
    if (this.#ended) this.#lose(this.#ended)
    else {
      this.#worker.ref()
      this.#worker.postMessage(texts, [])
    }
    return promise
  }

  async close(): Promise<void> {
    await this.#worker.terminate()
  }

  #lose(cause: Error): void {
    this.#ended ??= cause
    const error = new EmbedderUnavailable('The embedder has stopped', { cause: this.#ended })
    this.#settle(({ reject }) => reject(error))
  }

  #settle(how: (waiting: PromiseWithResolvers<Answer>) => void): void {
    const waiting = this.#waiting
    this.#waiting = null
    this.#worker.unref()
    if (waiting) how(waiting)
  }
}
