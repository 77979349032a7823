import { createHash } from 'node:crypto'

/** Into how many buckets the runs of a workflow fall: a weight has two digits behind the point of a percentage. */
export const buckets = 10_000

/** The bucket of a run, the same for the same key each time. */
export function bucketOf(workflowId: string, key: string): number {
  const hash = createHash('sha256').update(`${workflowId}\n${key}`).digest()
  return hash.readUInt32BE(0) % buckets
}
