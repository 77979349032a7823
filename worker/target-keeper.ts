import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { removeUnwantedObjects } from '../models/blobs.ts'

const everyMs = 10_000

/** Removes what is no longer wanted from the buckets of tenants. Every worker runs one; they do not conflict. */
export function startTargetKeeper(log: Logger): { stop: () => Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const tell = (target_id: string, reason: string): void =>
    log.info({ target_id, reason }, 'objects of a backup target were not removed; trying again later')

  const running = (async () => {
    while (!signal.aborted) {
      try {
        while (!signal.aborted && (await removeUnwantedObjects(tell))) {}
      } catch (error) {
        log.warn({ err: error }, 'backup targets were not tidied up; trying again')
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
