import { setTimeout as delay } from 'node:timers/promises'
import { makeLoadBalancers, makeLoadBalancersOnHost } from '../../../activities/host/load-balancers.ts'
import type { Networks } from '../../../activities/host/networks.ts'
import type { Settings } from '../../../config.ts'
import { openHaproxy } from '../../../drivers/haproxy/engine.ts'
import { makeMemberNamespaces } from '../../../drivers/linux/member-namespaces.ts'
import type { LoadBalancerEngine, LoadBalancerState } from '../../../drivers/load-balancers.ts'
import { missingForLoadBalancers } from '../../../drivers/system/equipment.ts'
import type { HostPorts } from '../../../drivers/system/host-ports.ts'
import type { HostLoadBalancers, ObservedLoadBalancer } from '../../../lib/load-balancer-protocol.ts'
import type { Logger } from '../../../lib/log.ts'
import type { HostPart } from '../part.ts'

// A list asks every proxy, so between lists only those with news are asked.
const listEveryMs = 5_000
// The end of a process is noticed at once. This also checks its namespace and NIC, which nothing reports.
const mendEveryMs = 30_000

interface Opening {
  hostId: string
  ports: HostPorts
  logs: { backlogMib: number; beforeRemoval: (id: string) => Promise<void> } | null
  log: Logger
}

/** Opens the load balancers of this host and connects to running ones. Null if the host lacks what they need. */
export async function openLoadBalancers(
  settings: Settings<'host'>,
  { hostId, ports, logs, log }: Opening,
): Promise<LoadBalancerEngine | null> {
  const lacking = await missingForLoadBalancers()
  if (lacking.length) {
    log.warn({ lacking }, 'no load balancers on this host: see docs/operators.md')
    return null
  }
  return openHaproxy({
    hostId,
    folder: settings.KEELSON_HOST_LOAD_BALANCERS,
    run: settings.KEELSON_HOST_LOAD_BALANCERS_RUN,
    hostNamespace: settings.KEELSON_HOST_NAMESPACE ?? null,
    ports,
    ...(logs ? { logBacklogMib: logs.backlogMib, beforeRemoval: logs.beforeRemoval } : {}),
  })
}

interface Parts {
  engine: LoadBalancerEngine | null
  hostId: string
  networks: Networks
  wanted: () => Promise<HostLoadBalancers>
  log: Logger
}

/** `found` returns the last known ones. */
export type LoadBalancersPart = HostPart & { found(): LoadBalancerState[] }

export function loadBalancersPart({ engine, hostId, networks, wanted, log }: Parts): LoadBalancersPart {
  if (!engine) return { name: 'load_balancers', activities: makeLoadBalancersOnHost(null), found: () => [] }
  let found = new Map<string, LoadBalancerState>()
  let listedAt = 0
  const changed = new Set<string>()
  let report: (() => void) | null = null
  const news = (id: string): void => {
    changed.add(id)
    report?.()
  }
  const namespaces = makeMemberNamespaces(hostId)
  const balancers = makeLoadBalancers({ engine, namespaces, networks, wanted, onChange: news, log })
  const tryTo = (what: string, work: () => Promise<unknown>): Promise<unknown> =>
    work().catch((err: unknown) => log.warn({ err }, `${what}; trying again`))

  async function look(): Promise<void> {
    if (!engine) return
    if (Date.now() - listedAt > listEveryMs) {
      listedAt = Date.now()
      changed.clear()
      found = new Map((await engine.list()).map((one) => [one.id, one]))
      return
    }
    const ids = [...changed]
    changed.clear() // before reading, so that a change meanwhile is read again
    for (const id of ids) {
      const state = await engine.find(id)
      if (state) found.set(id, state)
      else found.delete(id)
    }
  }

  return {
    name: 'load_balancers',
    kinds: ['load_balancer'],
    activities: makeLoadBalancersOnHost(balancers),
    found: () => [...found.values()],

    async observe() {
      try {
        await look()
      } catch (error) {
        listedAt = 0
        throw error
      }
      return [...found.values()].map(toObserved)
    },

    async watch(onChange, signal) {
      report = onChange
      await engine.watch((id) => {
        news(id)
        void tryTo('a load balancer was not mended', () => engine.mend())
      }, signal)
    },

    /** What is not this host's is not in its wanted state. */
    remove(ids) {
      if (ids.length) void tryTo('load balancers were not removed', () => balancers.apply())
    },

    version: balancers.version,
    applyWanted: () => balancers.apply(),

    async keep(signal) {
      while (!signal.aborted) {
        await tryTo('load balancers were not checked', () => balancers.apply({ mend: true }))
        await tryTo('load balancers were not mended', () => engine.mend())
        await delay(mendEveryMs, undefined, { signal }).catch(() => undefined)
      }
    },

    close: () => engine.close(),
  }
}

const toObserved = ({
  id,
  state,
  ports,
  refused,
  left_out,
  targets,
}: LoadBalancerState): ObservedLoadBalancer => ({
  kind: 'load_balancer',
  id,
  state,
  ports,
  refused,
  left_out,
  targets,
})
