import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { markUnreachable, silentAfterMs } from '../models/compute/reachability.ts'

const everyMs = 5_000

/**
 * Looks which hosts have fallen silent. Every worker does; they do not disturb each other. While nobody could have heard
 * the hosts, since the platform itself was away, their silence says nothing: it counts from when this began to look,
 * and anew after each look that failed.
 */
export function watchHosts(log: Logger): { stop: () => Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  let listeningSince = Date.now()

  async function look(): Promise<void> {
    try {
      if (Date.now() - listeningSince <= silentAfterMs) return
      for (const name of await markUnreachable()) log.warn({ host: name }, 'host does not report')
    } catch (error) {
      listeningSince = Date.now()
      log.warn({ err: error }, 'hosts cannot be looked at')
    }
  }

  const running = (async () => {
    while (!signal.aborted) {
      await look()
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
