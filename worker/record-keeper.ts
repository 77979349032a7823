import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { removeOldRuns } from '../models/ai/run-removal.ts'
import { removeOldOperations } from '../models/operation-retention.ts'

const everyMs = 600_000

interface Days {
  KEELSON_OPERATION_DAYS: number
  KEELSON_RUN_DAYS: number
}

/** Removes operations and runs beyond their lifetime. Every worker runs one; they do not conflict. */
export function startRecordKeeper(
  { KEELSON_OPERATION_DAYS, KEELSON_RUN_DAYS }: Days,
  log: Logger,
): { stop: () => Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const removeAll = async (what: string, removeSome: () => Promise<number>): Promise<void> => {
    try {
      while (!signal.aborted && (await removeSome())) {}
    } catch (error) {
      log.warn({ err: error }, `old ${what} were not removed; trying again`)
    }
  }
  const running = (async () => {
    while (!signal.aborted) {
      await removeAll('operations', () => removeOldOperations(KEELSON_OPERATION_DAYS))
      await removeAll('runs', () => removeOldRuns(KEELSON_RUN_DAYS))
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
