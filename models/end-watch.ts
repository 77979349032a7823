import { EventEmitter } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import type { Model, QueryFilter } from 'mongoose'
import { NotFound } from '../lib/problem.ts'
import { onFieldRemoved } from './changes.ts'
import { unlessAway } from './database-away.ts'
import { readOne } from './read-one.ts'
import { everyTenant } from './tenant-scope.ts'

/** What has ended has no field `open`. */
interface Ending {
  _id: string
  tenant_id: string
  open?: true
}

// The change stream may have missed an end while it was interrupted, so awaited documents are also looked at, many in one query.
// With a query for each, and one for its caller, 1,600 waiters took 96 % of a process's time.
const lookEveryMs = 5_000
const looksAtOnce = 1_000

/** The ends of a collection's documents, which this process waits for. `title`: of one, in sentences. */
export class EndWatch<D extends Ending> {
  readonly #model: Model<D>
  readonly #title: string
  /** Its events are the ids of the documents that are waited for. */
  readonly #ended = new EventEmitter({ captureRejections: true }).setMaxListeners(0)
  #isLooking = false

  constructor(model: Model<D>, title: string) {
    this.#model = model
    this.#title = title
    onFieldRemoved(model, 'open', (id) => this.#ended.emit(id))
  }

  /**
   * Waits for the end of a tenant's document, at most `ms` and until aborted, and returns the document as it is then. Throws
   * NotFound.
   */
  async awaitEnd(tenant_id: string, _id: string, ms: number, signal?: AbortSignal): Promise<D> {
    const deadline = Date.now() + ms
    for (;;) {
      // Listen before the query: an end between the two is not missed.
      const news = this.#nextNews(_id, deadline - Date.now(), signal)
      try {
        const found = await unlessAway(() => readOne(this.#model, '_id', _id, { tenant_id }))
        if (!found) throw new NotFound(this.#title)
        if (!found.open || Date.now() >= deadline || signal?.aborted) return found
        await news.heard
      } finally {
        news.forget()
      }
    }
  }

  /** Hears when the document has ended, the time is over, or the signal aborts. */
  #nextNews(
    id: string,
    ms: number,
    signal: AbortSignal | undefined,
  ): { heard: Promise<void>; forget: () => void } {
    const { promise: heard, resolve } = Promise.withResolvers<void>()
    const hear = (): void => resolve()
    const timer = globalThis.setTimeout(hear, Math.max(0, ms))
    signal?.addEventListener('abort', hear, { once: true })
    this.#ended.once(id, hear)
    void this.#lookWhileAwaited()
    return {
      heard,
      forget: () => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', hear)
        this.#ended.off(id, hear)
      },
    }
  }

  /** Looks at all documents that are waited for, until there are none. */
  async #lookWhileAwaited(): Promise<void> {
    if (this.#isLooking) return
    this.#isLooking = true
    for (;;) {
      await setTimeout(lookEveryMs, undefined, { ref: false })
      const awaited = this.#ended.eventNames().map(String)
      if (awaited.length === 0) break
      await this.#look(awaited).catch(() => {}) // the next look finds the same
    }
    this.#isLooking = false
  }

  /** Tells the waiters of those that have ended, or are gone. */
  async #look(awaited: string[]): Promise<void> {
    for (let at = 0; at < awaited.length; at += looksAtOnce) {
      const ids = awaited.slice(at, at + looksAtOnce)
      const some = { _id: { $in: ids }, open: true } as unknown as QueryFilter<D>
      const open = await this.#model.find(some, { _id: 1 }).setOptions(everyTenant).lean<{ _id: string }[]>()
      const isOpen = new Set(open.map(({ _id }) => _id))
      for (const id of ids) if (!isOpen.has(id)) this.#ended.emit(id)
    }
  }
}
