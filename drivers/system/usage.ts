import type { Usage } from '../containers.ts'

// Reads what the kernel's files say of the usage of a control group and of a network namespace.

export type GroupUsage = Omit<Usage, 'net_rx_bytes' | 'net_tx_bytes'>
/** The files of a group, by what they tell of. */
export type Texts = Record<'cpu' | 'used' | 'memory' | 'disk', string>

/** Of version 1: times in nanoseconds. */
export const parseVersion1 = ({ cpu, used, memory, disk }: Texts): GroupUsage => ({
  cpu_ms: Math.floor(Number(cpu) / 1e6),
  memory_bytes: Math.max(0, Number(used) - valueOf(memory, 'total_inactive_file')),
  disk_read_bytes: sumOf(disk, / Read (\d+)$/gm),
  disk_write_bytes: sumOf(disk, / Write (\d+)$/gm),
})

/** Of version 2: times in microseconds. */
export const parseVersion2 = ({ cpu, used, memory, disk }: Texts): GroupUsage => ({
  cpu_ms: Math.floor(valueOf(cpu, 'usage_usec') / 1e3),
  memory_bytes: Math.max(0, Number(used) - valueOf(memory, 'inactive_file')),
  disk_read_bytes: sumOf(disk, /\brbytes=(\d+)/g),
  disk_write_bytes: sumOf(disk, /\bwbytes=(\d+)/g),
})

/** Sums all interfaces of a `/proc/PID/net/dev` except loopback. */
export function parseInterfaces(text: string): Pick<Usage, 'net_rx_bytes' | 'net_tx_bytes'> {
  const lines = [...text.matchAll(/^\s*(\S+):\s*(\d+)(?:\s+\d+){7}\s+(\d+)/gm)].filter(
    ([, name]) => name !== 'lo',
  )
  const sum = (column: number): number => lines.reduce((all, line) => all + Number(line[column]), 0)
  return { net_rx_bytes: sum(2), net_tx_bytes: sum(3) }
}

const valueOf = (text: string, key: string): number =>
  Number(new RegExp(`^${key} (\\d+)$`, 'm').exec(text)?.[1] ?? 0)

const sumOf = (text: string, number: RegExp): number =>
  [...text.matchAll(number)].reduce((sum, [, value]) => sum + Number(value), 0)
