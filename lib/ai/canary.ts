import { createHash } from 'node:crypto'

// Which runs of a workflow go to its canary.

/** Into how many buckets the runs of a workflow fall: a weight has two decimals. */
export const buckets = 10_000

/**
 * The bucket of a run, 0 to 9,999: a hash of its key, so that runs of one key stay together as long as the weight does. Keys of
 * two workflows are independent of each other.
 */
export const bucketOf = (workflowId: string, key: string): number =>
  createHash('sha256').update(`${workflowId}\n${key}`).digest().readUInt32BE(0) % buckets

/**
 * Whether a canary of this weight takes the bucket. `weight`: percent, 0 to 100, of which two decimals count. It takes the
 * lowest buckets: another weight moves only those between the two.
 */
export const takes = (weight: number, bucket: number): boolean =>
  // Rounded: 0.29 * 100 is less than 29.
  bucket < Math.round((weight * buckets) / 100)
