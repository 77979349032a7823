import { readFile } from 'node:fs/promises'
import type { ContainerSample } from '../containers.ts'
import { bytesOf } from '../linux/commands.ts'
import type { MachineHost } from './host.ts'
import { Usage } from './messages.ts'
import type { Counters, MachineRecord } from './records.ts'
import type { Qmp } from '../system/qmp.ts'

// What a machine has used since its start. Each process counts from zero; the record has the usage of earlier
// processes of the same start.

interface BlockStats {
  stats: { rd_bytes: number; wr_bytes: number }
}

export async function usedBy(
  host: MachineHost,
  { spec, used_before }: MachineRecord,
  qmp: Qmp,
): Promise<Counters> {
  const [cpuMs, blocks] = await Promise.all([host.cpuMs(spec.id), qmp.execute('query-blockstats')])
  const sum = (of: (stats: BlockStats['stats']) => number): number =>
    (blocks as BlockStats[]).reduce((all, { stats }) => all + of(stats), 0)
  return {
    cpu_ms: used_before.cpu_ms + cpuMs,
    disk_read_bytes: used_before.disk_read_bytes + sum(({ rd_bytes }) => rd_bytes),
    disk_write_bytes: used_before.disk_write_bytes + sum(({ wr_bytes }) => wr_bytes),
  }
}

const usageWithinMs = 2_000

/** Null if the machine has ended. */
export async function sampleOf(host: MachineHost, id: string): Promise<ContainerSample | null> {
  const [record, link] = [await host.record(id), host.presentLink(id)]
  if (!record?.started_at || !record.launched || !link) return null
  try {
    const used = await usedBy(host, record, link.monitor)
    const asked = link.agent.isReady ? link.agent.ask('usage', null, { withinMs: usageWithinMs }) : null
    const own = await asked?.catch(() => null)
    const traffic = await Promise.all(
      record.launched.nics.flatMap((nic) => (nic ? [bytesOf(nic.namespace, nic.device)] : [])),
    )
    // Swap directions: what the tap receives, the machine has sent.
    const sum = (of: (bytes: NonNullable<(typeof traffic)[number]>) => number): number =>
      traffic.reduce((all, bytes) => all + (bytes ? of(bytes) : 0), 0)
    return {
      id,
      time: new Date().toISOString(),
      started_at: record.started_at,
      ...used,
      memory_bytes: Usage.safeParse(own).data?.memory_bytes ?? (await residentBytes(host, id)),
      net_rx_bytes: sum(({ tx }) => tx.bytes),
      net_tx_bytes: sum(({ rx }) => rx.bytes),
    }
  } catch {
    return null // the machine is ending
  }
}

async function residentBytes(host: MachineHost, id: string): Promise<number> {
  const pid = (await host.look(id))?.pid
  const status = pid ? await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '') : ''
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) * 1024
}
