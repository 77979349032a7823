import { z } from 'zod'
import { sealPart, SegmentName, unsealPart } from './backup-protocol.ts'

// Messages between a host and the API about the archives of databases' logs. A segment is compressed and sealed with the
// key of its archive.

export const segmentBytes = 16 * 1024 ** 2
/** A segment that cannot be compressed grows a little. */
export const segmentAtMostKib = segmentBytes / 1024 + 64

/** The databases on a host's machines that can have an archive, with its key and the scripts of their engines. */
export const DatabaseArchivesOnHost = z.object({
  version: z.string(),
  databases: z.array(
    z.object({
      id: z.string(),
      deploy_server_id: z.string(),
      machine_id: z.string(),
      /** Null: the archive that its volume has ends. `is_open`: the volume is known to have it. */
      archive: z.object({ id: z.string(), key: z.string(), is_open: z.boolean() }).nullable(),
      scripts: z.object({
        open: z.string(),
        look: z.string(),
        read: z.string(),
        forget: z.string(),
        close: z.string(),
      }),
    }),
  ),
})
export type DatabaseArchivesOnHost = z.infer<typeof DatabaseArchivesOnHost>

export const ArchiveReport = z.discriminatedUnion('state', [
  z.strictObject({ state: z.literal('opened') }),
  /** All that was committed until then is stored. */
  z.strictObject({ state: z.literal('idle'), at: z.iso.datetime() }),
  z.strictObject({ state: z.literal('lost') }),
  z.strictObject({ state: z.literal('gap'), segment: SegmentName }),
])
export type ArchiveReport = z.infer<typeof ArchiveReport>

export const SegmentPlace = z.strictObject({
  name: SegmentName,
  /** All that was committed until then is in it and in those before. */
  ticked_at: z.iso.datetime().optional(),
})
export type SegmentPlace = z.infer<typeof SegmentPlace>

const contextOf = (archiveId: string, name: string): string => `${archiveId}:${name}`

export const sealSegment = (key: string, archiveId: string, name: string, plain: Uint8Array): Buffer =>
  Buffer.concat(sealPart(key, contextOf(archiveId, name), 0, [plain]))

/** Throws if anything was changed, or the segment is another one. */
export const unsealSegment = (key: string, archiveId: string, name: string, sealed: Uint8Array): Buffer =>
  Buffer.concat(unsealPart(key, contextOf(archiveId, name), 0, [sealed]))

const perLog = 256

/** The names of segments from one to another, both included. Empty if that is another timeline or an earlier one. */
export function segmentsBetween(first: string, last: string): string[] {
  const timeline = first.slice(0, 8)
  if (!last.startsWith(timeline)) return []
  const [from, to] = [numberOf(first), numberOf(last)]
  return Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => nameOf(timeline, from + i))
}

const numberOf = (name: string): number =>
  Number.parseInt(name.slice(8, 16), 16) * perLog + Number.parseInt(name.slice(16), 16)

const hex = (value: number): string => value.toString(16).toUpperCase().padStart(8, '0')
const nameOf = (timeline: string, number: number): string =>
  `${timeline}${hex(Math.floor(number / perLog))}${hex(number % perLog)}`
