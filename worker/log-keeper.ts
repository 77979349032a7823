import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { removeUnwantedBlobs } from '../models/blobs.ts'
import { removeStrayArchives, trimArchives } from '../models/compute/log-retention.ts'

const everyMs = 10_000
// Reads every archive, to find strays that remain when a deletion races with an upload.
const straysEveryMs = 3_600_000

interface Retention {
  KEELSON_LOG_ARCHIVE_DAYS: number
  KEELSON_LOG_ARCHIVE_MIB: number
}

/** Removes expired output from the log archive. Every worker runs one; they do not conflict. */
export function startLogKeeper(settings: Retention, log: Logger): { stop: () => Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const limits = {
    days: settings.KEELSON_LOG_ARCHIVE_DAYS,
    bytes: settings.KEELSON_LOG_ARCHIVE_MIB * 1024 ** 2,
  }

  let straysAt = 0
  async function round(): Promise<void> {
    try {
      if (Date.now() - straysAt > straysEveryMs) {
        straysAt = Date.now()
        await removeStrayArchives()
      }
      await trimArchives(limits)
      while (!signal.aborted && (await removeUnwantedBlobs())) {}
    } catch (error) {
      log.warn({ err: error }, 'the log archive was not tidied up; trying again')
    }
  }

  const running = (async () => {
    while (!signal.aborted) {
      await round()
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
