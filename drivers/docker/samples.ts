import type { ContainerSample, FoundContainer, Usage } from '../containers.ts'
import { readUsage } from '../linux/cgroups.ts'

// If the namespace is older than the start by this much, it outlived a restart and its counters did not reset.
const sameStartMs = 5_000

const runOf = ({ engine_id, started_at }: FoundContainer): string => `${engine_id} ${started_at}`

/** Samples containers. Subtracts network traffic from before a container's last restart. */
export function makeSampler() {
  /** Per run: the network counters at its first sample. */
  let before = new Map<string, Pick<Usage, 'net_rx_bytes' | 'net_tx_bytes'>>()

  async function sampleOf(found: FoundContainer): Promise<ContainerSample | null> {
    const { id, engine_id, pid, started_at, network_since = null } = found
    if (pid === null || started_at === null) return null
    const usage = await readUsage(pid, engine_id)
    if (!usage) return null
    const sample = { id, time: new Date().toISOString(), started_at, ...usage }
    if (network_since === null || Date.parse(started_at) - Date.parse(network_since) < sameStartMs)
      return sample
    const { net_rx_bytes, net_tx_bytes } = before.get(runOf(found)) ?? usage
    before.set(runOf(found), { net_rx_bytes, net_tx_bytes })
    return {
      ...sample,
      net_rx_bytes: Math.max(0, usage.net_rx_bytes - net_rx_bytes),
      net_tx_bytes: Math.max(0, usage.net_tx_bytes - net_tx_bytes),
    }
  }

  return {
    sampleOf,
    /** Forgets all other runs. */
    keep(containers: FoundContainer[]): void {
      const runs = new Set(containers.map(runOf))
      before = new Map([...before].filter(([run]) => runs.has(run)))
    },
  }
}
