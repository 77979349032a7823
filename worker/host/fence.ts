import { setTimeout as delay } from 'node:timers/promises'
import type { Settings } from '../../config.ts'
import { openContainerNetwork } from '../../drivers/docker/network.ts'
import { EngineError } from '../../drivers/errors.ts'
import { lookAt } from '../../drivers/linux/commands.ts'
import { applyFence } from '../../drivers/linux/fences.ts'
import type { Logger } from '../../lib/log.ts'
import { untilItWorks } from '../retry.ts'
import { resolversOf } from './parts/networks.ts'

// A flushed table or a new route is not reported by anything, so make the rules again. It takes 20 ms.
const mendEveryMs = 10_000

/** The bridge of this host's containers, and its firewall. */
export interface HostFence {
  /** The network of containers without NICs; null for the engine's default. */
  network: () => Promise<string | null>
  /** Makes the rules again, until aborted. */
  keep(log: Logger, signal: AbortSignal): Promise<void>
}

/**
 * Fences this host's containers off. Waits for the engine. Throws, and so ends the host, on an engine or a kernel where
 * this cannot be done: without the fence, tenants' containers would reach each other and the platform.
 */
export async function openFence(
  settings: Settings<'host'>,
  hostId: string,
  insisting: { signal: AbortSignal; log: Logger },
): Promise<HostFence> {
  const namespace = settings.KEELSON_HOST_NAMESPACE ?? null
  const network = {
    hostId,
    dockerHost: settings.KEELSON_DOCKER_HOST,
    defaultBridge: settings.KEELSON_CONTAINER_BRIDGE ?? null,
    pool: settings.KEELSON_CONTAINER_POOL,
    taken: async () => (await lookAt(namespace)).routes.map(({ dst }) => dst),
  }
  async function fenced({ bridge }: { bridge: string }): Promise<void> {
    const resolvers = (await resolversOf(settings)).filter((address) => !address.includes(':'))
    await applyFence({
      host: hostId,
      namespace,
      bridge,
      refused: settings.KEELSON_NETWORK_REFUSED,
      resolvers,
      hostPorts: [settings.KEELSON_VXLAN_PORT, settings.KEELSON_TUNNEL_PORT],
    })
  }
  async function open() {
    const opened = await openContainerNetwork(network)
    await fenced(opened)
    return opened
  }
  const what = 'fencing the containers off'
  const { bridge, mode } = await untilItWorks(what, open, { ...insisting, hopeless }).catch(
    (cause: unknown) => {
      if (!hopeless(cause)) throw cause
      throw new Error(`${needs}: ${(cause as Error).message}`, { cause })
    },
  )

  return {
    network: mode,
    async keep(log, signal) {
      while (!signal.aborted) {
        await delay(mendEveryMs, undefined, { signal }).catch(() => undefined)
        // The network may have been removed, with its bridge.
        if (!signal.aborted)
          await mode()
            .then(() => fenced({ bridge }))
            .catch((err: unknown) => log.warn({ err }, 'the containers are not fenced off; trying again'))
      }
    },
  }
}

const hopeless = (error: unknown): boolean => error instanceof EngineError && error.permanent

const needs =
  'this host cannot keep its containers apart. It needs root, nftables, iproute2 and an engine whose bridges are in ' +
  'its own network namespace (docs/hosts.md#containers)'
