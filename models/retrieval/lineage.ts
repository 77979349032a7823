import type { RagDocumentDocument } from './documents.ts'

// Which documents a store has after it was restored. Each document names the disk on which it was indexed, and when. A store's
// disk has what was indexed on it, and of each former disk what was indexed there before the snapshot was taken.

/** A disk of which a later one has a snapshot's content. */
export interface FormerDisk {
  disk_id: string
  /** Documents that were indexed on it before are in the snapshot, and in all later ones. */
  until: Date
}

/**
 * Beside clocks that differ, and work that was under way when a snapshot was taken. What is counted as too late by mistake
 * is indexed once more.
 */
export const marginMs = 600_000

/** What a snapshot that was asked for at this time has without doubt: what was indexed before. */
export const safelyBefore = (asked: Date): Date => new Date(asked.getTime() - marginMs)

interface Store {
  disk_id: string | null
  /** The first one first. */
  former_disks: FormerDisk[]
}

/** The filter of documents that the records have in the index, and the store has not, or not in this version. */
export const lostFrom = ({ disk_id, former_disks }: Store) => ({
  indexed_version: { $ne: null },
  $nor: [
    { indexed_in: disk_id },
    ...former_disks.map((former) => ({
      indexed_in: former.disk_id,
      indexed_at: { $lt: former.until },
    })),
  ],
})

/** Whether that is so of one document. */
export const isLost = (
  { disk_id, former_disks }: Store,
  {
    indexed_version,
    indexed_in,
    indexed_at,
  }: Pick<RagDocumentDocument, 'indexed_version' | 'indexed_in' | 'indexed_at'>,
): boolean =>
  indexed_version !== null &&
  indexed_in !== disk_id &&
  !former_disks.some(
    (former) => former.disk_id === indexed_in && indexed_at !== null && indexed_at < former.until,
  )
