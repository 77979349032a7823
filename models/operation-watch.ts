import { EventEmitter } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { NotFound } from '../lib/problem.ts'
import { Operation, type OperationDocument } from './operations.ts'

const ended = new EventEmitter({ captureRejections: true }).setMaxListeners(0)
// The change stream may have missed an end while it was interrupted, so waiters also poll.
const lookEveryMs = 5_000

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
    const news = nextNews(id, Math.min(lookEveryMs, deadline - Date.now()))
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

function nextNews(id: string, ms: number): { heard: Promise<void>; forget: () => void } {
  const { promise: heard, resolve } = Promise.withResolvers<void>()
  const timer = globalThis.setTimeout(resolve, Math.max(0, ms))
  ended.once(id, resolve)
  return {
    heard,
    forget() {
      clearTimeout(timer)
      ended.off(id, resolve)
    },
  }
}
