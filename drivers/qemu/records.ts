import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Ending, FoundMachine, MachineNic, MachineSpec, Suspended } from '../machines.ts'
import type { BoundPort } from '../system/host-ports.ts'
import type { MachinePlace } from './places.ts'
import { nullIfMissing, publishText } from '../system/files.ts'

/** What a process was started with: as long as it or its memory lives, that holds, whatever the spec says. */
export interface Launched {
  cpu_cores: number
  memory_mib: number
  /** By the number of their ports, which are a part of the memory. */
  nics: (MachineNic | null)[]
  /** By their numbers on the bus. */
  disks: (string | null)[]
}

/** What is known of a machine, in its folder; what runs is asked of the machine itself. It holds no secret. */
export interface MachineRecord {
  spec: MachineSpec
  engine_id: string
  image_digest: string
  created_at: string
  /** Who made it, so that a failure takes away only what was made by the same. */
  made_by: string
  operation_id: string
  started_at: string | null
  launched: Launched | null
  exit_code: number | null
  oom_killed: boolean
  restart_count: number
  suspended: (Suspended & { root_image: string }) | null
  /** Set just before a resumed machine runs: how its root disk was then. Once that has changed, the memory is of no use. */
  resumed_over: { mtime_ns: string; size: number } | null
  /** The number of the last line that is another machine's: a fork goes on counting. */
  lines_before: number
  /** A fork that is not a machine of its own yet. */
  forking: boolean
  /** What earlier processes of the same start have used. */
  used_before: Counters
  /** What its published ports were last. */
  ports: BoundPort[]
  /** Null before the first check, and where nothing checks it. */
  health: Health | null
  /** What QEMU said of its end. */
  ended_by: Ending | null
}

/** What its health check has found since the command started. */
export interface Health {
  status: 'starting' | 'healthy' | 'unhealthy'
  /** Failures one after the other. */
  failures: number
  /** Which start of the command it is of. */
  restarts: number
}

/** As it is told of the machine. */
export const healthOf = ({ spec, health }: MachineRecord): FoundMachine['health'] =>
  spec.health_check ? (health?.status ?? 'starting') : 'none'

export interface Counters {
  cpu_ms: number
  disk_read_bytes: number
  disk_write_bytes: number
}

export const noCounters: Counters = { cpu_ms: 0, disk_read_bytes: 0, disk_write_bytes: 0 }

/** Of a machine that an operation makes, of which nothing is there yet. */
export const newRecord = (
  of: Pick<MachineRecord, 'spec' | 'image_digest' | 'operation_id' | 'launched'>,
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

/** What of it is a secret is given with each start, and not kept. */
export const writeRecord = (place: MachinePlace, record: MachineRecord): Promise<void> =>
  publishText(place.record, JSON.stringify({ ...record, spec: { ...record.spec, user_data: null } }))
