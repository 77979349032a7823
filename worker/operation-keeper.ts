import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { removeOldOperations } from '../models/operation-retention.ts'

const everyMs = 600_000

/** Removes operations beyond their lifetime. Every worker runs one; they do not conflict. */
export function startOperationKeeper(
  { KEELSON_OPERATION_DAYS: days }: { KEELSON_OPERATION_DAYS: number },
  log: Logger,
): { stop: () => Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const running = (async () => {
    while (!signal.aborted) {
      try {
        while (!signal.aborted && (await removeOldOperations(days))) {}
      } catch (error) {
        log.warn({ err: error }, 'old operations were not removed; trying again')
      }
      await setTimeout(everyMs, undefined, { signal }).catch(() => undefined)
    }
  })()
  return {
    async stop() {
      stopping.abort()
      await running
    },
  }
}
