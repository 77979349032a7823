import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Ending, FoundMachine, MachineNic, MachineSpec, Suspended } from '../machines.ts'
import type { BoundPort } from '../system/host-ports.ts'
import type { MachinePlace } from './places.ts'
import { nullIfMissing, publishText } from '../system/files.ts'

/** What QEMU was started with. Valid as long as the process or its memory exists, even if the spec changes. */
export interface Launched {
  cpu_cores: number
  memory_mib: number
  /** By port number, which is part of the memory. */
  nics: (MachineNic | null)[]
  /** By number on the bus. */
  disks: (string | null)[]
}

/**
 * A machine's record in its folder. The state of a running machine comes from the machine itself. The record holds no
 * secrets.
 */
export interface MachineRecord {
  spec: MachineSpec
  engine_id: string
  image_digest: string
  /** The digest of the kernel with which it was made. Null until its next start, if it is older than this rule. */
  kernel: string | null
  created_at: string
  /** The operation that made the machine: only its failure removes the machine. */
  made_by: string
  operation_id: string
  started_at: string | null
  launched: Launched | null
  exit_code: number | null
  oom_killed: boolean
  restart_count: number
  suspended: (Suspended & { root_image: string }) | null
  /**
   * Set just before a resumed machine runs: the state of its root disk. If the disk has changed since, the memory
   * cannot be used.
   */
  resumed_over: { mtime_ns: string; size: number } | null
  /** The number of the last line from the original machine: a fork continues its numbering. */
  lines_before: number
  /** A fork that still has the original's identity. */
  forking: boolean
  /** Usage of earlier processes since the same start. */
  used_before: Counters
  /** The last published ports. */
  ports: BoundPort[]
  /** Null before the first check, and without a health check. */
  health: Health | null
  /** QEMU's reason for its end. */
  ended_by: Ending | null
}

/** Results of the health check since the command started. */
export interface Health {
  status: 'starting' | 'healthy' | 'unhealthy'
  /** Consecutive failures. */
  failures: number
  /** The restart of the command that was checked. */
  restarts: number
}

/** The health as reported for the machine. */
export const healthOf = ({ spec, health }: MachineRecord): FoundMachine['health'] =>
  spec.health_check ? (health?.status ?? 'starting') : 'none'

export interface Counters {
  cpu_ms: number
  disk_read_bytes: number
  disk_write_bytes: number
}

export const noCounters: Counters = { cpu_ms: 0, disk_read_bytes: 0, disk_write_bytes: 0 }

/** The record of a new machine of which nothing exists yet. */
export const newRecord = (
  of: Pick<MachineRecord, 'spec' | 'image_digest' | 'kernel' | 'operation_id' | 'launched'>,
): MachineRecord => ({
  ...of,
  engine_id: randomUUID(),
  created_at: new Date().toISOString(),
  made_by: of.operation_id,
  started_at: null,
  exit_code: null,
  oom_killed: false,
  restart_count: 0,
  suspended: null,
  resumed_over: null,
  lines_before: 0,
  forking: false,
  used_before: noCounters,
  ports: [],
  health: null,
  ended_by: null,
})

export async function readRecord(place: MachinePlace): Promise<MachineRecord | null> {
  const text = await readFile(place.record, 'utf8').catch(nullIfMissing)
  return text === null ? null : (JSON.parse(text) as MachineRecord)
}

/** Secrets are passed at each start and never stored. */
export const writeRecord = (place: MachinePlace, record: MachineRecord): Promise<void> =>
  publishText(place.record, JSON.stringify({ ...record, spec: { ...record.spec, user_data: null } }))
