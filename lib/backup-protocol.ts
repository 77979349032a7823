import { createSecretKey } from 'node:crypto'
import { z } from 'zod'
import { type KeyRing, sealPieces, unsealPieces } from './seal.ts'

// Messages between a host and the API about copies of databases. A copy is a dump, compressed, cut into parts, and sealed
// part by part with a key of its own.

/** How many bytes of a compressed dump are sealed together. */
export const partBytes = 8 * 1024 ** 2
const sealBytes = 64
export const partAtMostKib = (partBytes + sealBytes) / 1024 + 1
export const partType = 'application/octet-stream'

/** The bucket of a tenant refuses (409) or is away (503). The title says what happened, for people. */
export const targetFailedCode = 'backup_target_failed'
/** A part was removed from its store by hand. */
export const partMissingCode = 'part_missing'

/**
 * How many rows, documents or keys a restored copy has: `most`, or fewer if some may have expired. Null: clients have
 * written while the files were copied.
 */
const Count = z.strictObject({ name: z.string(), least: z.int(), most: z.int().nullable() })
export type Count = z.infer<typeof Count>

/** More tables than this are refused: their counts are one record. */
export const countsAtMost = 20_000
/** Of a report with so many: what one record can hold. */
export const reportAtMostKib = 16 * 1024

/** What a host needs to write a copy. `key`: 32 bytes in base64. */
export const DumpOrder = z.object({
  /** Parts of older attempts are refused. */
  attempt: z.int(),
  key: z.string(),
  machine_id: z.string(),
  service_id: z.string(),
  script: z.string(),
  /** Whether the platform compresses it. */
  compress: z.boolean(),
  /** The script that succeeds once the database answers. */
  healthy: z.string(),
})
export type DumpOrder = z.infer<typeof DumpOrder>

/** The host counts its attempts, so that a request which arrives late takes nothing from a later one. */
export const DumpAttempt = z.strictObject({ attempt: z.int().min(1) })

/** Null: an earlier attempt has written the copy whole. */
export const DumpBegun = z.object({ order: DumpOrder.nullable() })

/** A segment of the log of PostgreSQL: its timeline and its number. */
export const SegmentName = z.string().regex(/^[0-9A-F]{24}$/)

/** A whole copy. `stored_sha256` is that of what is stored, before it was sealed. */
export const DumpReport = z.strictObject({
  attempt: z.int(),
  parts: z.int().min(0),
  stored_bytes: z.int().min(0),
  dump_bytes: z.int().min(0),
  stored_sha256: z.string().length(64),
  counts: z.array(Count).max(countsAtMost),
  /** Of a copy of the engine's files. */
  base: z
    .strictObject({ start: SegmentName, moment: z.iso.datetime(), archive_id: z.string().max(100) })
    .nullable(),
})
export type DumpReport = z.infer<typeof DumpReport>

export const PartPlace = z.strictObject({
  attempt: z.coerce.number().int(),
  index: z.coerce.number().int().min(0),
})

/** An engine that is started only to take a copy. */
const ScratchOrder = z.object({
  machine_id: z.string(),
  image: z.string(),
  env: z.record(z.string(), z.string()),
  command: z.array(z.string()),
  cpu_cores: z.number(),
  memory_mib: z.int(),
  data_path: z.string(),
  /** Null: one that ends with the engine. */
  volume: z.object({ name: z.string(), labels: z.record(z.string(), z.string()) }).nullable(),
  stop_grace_sec: z.int(),
  healthy: z.string(),
  restore: z.string(),
  count: z.string(),
  /** Of a copy of the engine's files: the engine waits for `begin`. `adopt` gives it its database's password. */
  files: z
    .object({ fill_segments: z.string(), begin: z.string(), adopt: z.string().nullable().default(null) })
    .nullable(),
})
export type ScratchOrder = z.infer<typeof ScratchOrder>

/** What a host needs to read a copy, and to restore it. Without `engine` it is only read. */
export const CopyOrder = z.object({
  key: z.string(),
  parts: z.int(),
  dump_bytes: z.int(),
  stored_sha256: z.string().nullable(),
  /** Instead of it, of an older copy: that of the dump before it was compressed. */
  sha256: z.string().nullable(),
  compressed: z.boolean(),
  counts: z.array(Count),
  engine: ScratchOrder.nullable(),
  /** Segments that follow on a copy of files. They are read; with `target`, they bring the engine to that moment. */
  log: z
    .object({
      archive_id: z.string(),
      key: z.string(),
      segments: z.array(SegmentName),
      target: z.iso.datetime().nullable(),
    })
    .nullable(),
})
export type CopyOrder = z.infer<typeof CopyOrder>

/** So many fit into the result of an activity. A base leads only to the first after it. */
export const damagedAtMost = 10_000

/** How a copy was looked at. */
export interface Verified {
  by: 'restore' | 'reading'
  /** Tables, collections or key spaces. */
  tables: number
  /** Rows, documents or keys. */
  rows: number
  /** Segments that cannot be read as they were written. */
  damaged_segments?: string[]
}

const ringOf = (key: string): KeyRing => ({
  current: '-',
  keys: new Map([['-', createSecretKey(Buffer.from(key, 'base64'))]]),
})
const contextOf = (copyId: string, index: number): string => `backup-parts:${copyId}:${index}`

export const sealPart = (key: string, copyId: string, index: number, plain: Uint8Array[]): Buffer[] =>
  sealPieces(ringOf(key), plain, contextOf(copyId, index)).sealed

/** Throws if anything was changed, or the part is another one. */
export const unsealPart = (key: string, copyId: string, index: number, sealed: Uint8Array[]): Buffer[] =>
  unsealPieces(ringOf(key), '-', sealed, contextOf(copyId, index))

export const lengthOf = (pieces: Uint8Array[]): number => pieces.reduce((sum, { length }) => sum + length, 0)
