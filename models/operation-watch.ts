import { EventEmitter } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { NotFound } from '../lib/problem.ts'
import { Operation, type OperationDocument } from './operations.ts'
import { everyTenant } from './tenant-scope.ts'

/** Its events are the ids of the operations that are waited for. */
const ended = new EventEmitter({ captureRejections: true }).setMaxListeners(0)
// The change stream may have missed an end while it was interrupted, so the operations are also looked at: all together.
// With a query for each, and one for its caller, 1,600 waiters took 96 % of a process's time.
const lookEveryMs = 5_000
const looksAtOnce = 1_000

/** Watches the ends of all operations on one change stream per process, until aborted. */
export async function watchOperations(log: Logger, signal: AbortSignal): Promise<void> {
  const ends = [{ $match: { operationType: 'update', 'updateDescription.removedFields': 'open' } }]
  while (!signal.aborted) {
    const changes = Operation.collection.watch<OperationDocument>(ends)
    const close = () => void changes.close()
    signal.addEventListener('abort', close, { once: true })
    try {
      for await (const change of changes) if ('documentKey' in change) ended.emit(change.documentKey._id)
    } catch (error) {
      if (signal.aborted) return
      log.warn({ err: error }, 'the change stream of operations broke; opening another')
      await setTimeout(500, undefined, { signal }).catch(() => undefined)
    } finally {
      signal.removeEventListener('abort', close)
      await changes.close()
    }
  }
}

/**
 * Waits for the end of an operation, at most `ms` and until aborted, and returns the operation as it is then. Throws
 * NotFound.
 */
export async function awaitEnd(
  tenantId: string,
  id: string,
  ms: number,
  signal?: AbortSignal,
): Promise<OperationDocument> {
  const deadline = Date.now() + ms
  for (;;) {
    // Listen before the query: an end between the two is not missed.
    const news = nextNews(id, deadline - Date.now(), signal)
    try {
      const operation = await Operation.findOne({ _id: id, tenant_id: tenantId }).lean()
      if (!operation) throw new NotFound('operation')
      if (!operation.open || Date.now() >= deadline || signal?.aborted) return operation
      await news.heard
    } finally {
      news.forget()
    }
  }
}

/** Hears when the operation has ended, the time is over, or the signal aborts. */
function nextNews(
  id: string,
  ms: number,
  signal: AbortSignal | undefined,
): { heard: Promise<void>; forget: () => void } {
  const { promise: heard, resolve } = Promise.withResolvers<void>()
  const hear = (): void => resolve()
  const timer = globalThis.setTimeout(hear, Math.max(0, ms))
  signal?.addEventListener('abort', hear, { once: true })
  ended.once(id, hear)
  void lookWhileAwaited()
  return {
    heard,
    forget() {
      clearTimeout(timer)
      signal?.removeEventListener('abort', hear)
      ended.off(id, hear)
    },
  }
}

let isLooking = false

/** Looks at all operations that are waited for, until there are none. */
async function lookWhileAwaited(): Promise<void> {
  if (isLooking) return
  isLooking = true
  for (;;) {
    await setTimeout(lookEveryMs, undefined, { ref: false })
    const awaited = ended.eventNames().map(String)
    if (awaited.length === 0) break
    await look(awaited).catch(() => {}) // the next look finds the same
  }
  isLooking = false
}

/** Tells the waiters of those that have ended, or are gone. */
async function look(awaited: string[]): Promise<void> {
  for (let at = 0; at < awaited.length; at += looksAtOnce) {
    const ids = awaited.slice(at, at + looksAtOnce)
    const open = await Operation.find({ _id: { $in: ids }, open: true }, { _id: 1 })
      .setOptions(everyTenant)
      .lean()
    const isOpen = new Set(open.map(({ _id }) => _id))
    for (const id of ids) if (!isOpen.has(id)) ended.emit(id)
  }
}
