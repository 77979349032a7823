import { setTimeout } from 'node:timers/promises'
import type { Logger } from '../lib/log.ts'
import { lastHeardAt, markUnreachable, silentAfterMs } from '../models/compute/reachability.ts'
import { endLeftRests } from '../models/deploy/application-routes.ts'
import { rescueDeployServers } from '../models/deploy/lost-machines.ts'
import { rescueLoadBalancers } from '../models/network/lost-load-balancers.ts'

const everyMs = 5_000
// Each host sends a sign of life every 10 s.
const deafAfterMs = 15_000

/**
 * Detects hosts that stopped reporting, moves their load balancers away, and replaces their machines of deploy servers. Also
 * has workers serve again that a terminated operation has left at rest.
 * Every worker runs this; they do not conflict. While the platform itself was down, missing reports mean nothing, so
 * silence counts only from the start of this process and from the last failed check. While no host at all is heard, the
 * API or its network is down: then, and until all hosts had time to be heard again, nothing is moved away from any.
 */
export function watchHosts(log: Logger): { stop: () => Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  let listeningSince = Date.now()
  let deafAt = 0

  async function look(): Promise<void> {
    const now = Date.now()
    try {
      if (now - (await lastHeardAt()) > deafAfterMs) deafAt = now
      if (now - listeningSince <= silentAfterMs) return
      for (const name of await markUnreachable(now)) log.warn({ host: name }, 'host does not report')
      try {
        if (now - deafAt > silentAfterMs) {
          await rescueLoadBalancers(now)
          await rescueDeployServers(now)
        }
      } finally {
        await endLeftRests()
      }
    } catch (error) {
      listeningSince = Date.now()
      log.warn({ err: error }, 'hosts could not be checked')
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
