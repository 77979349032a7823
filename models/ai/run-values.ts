import { evaluationBounds, isDeeperThan, runBounds } from '../../lib/ai/bounds.ts'
import { Problem } from '../../lib/problem.ts'
import { dropReferences, shareBlob } from '../blob-shares.ts'
import { type BlobName, keepBlob, readBlob, storeBlob } from '../blobs.ts'

/** The JSON of a node's output, or of a run's: a small one is in its record, a larger one is a blob. */
export interface StoredValue {
  bytes: number
  json: string | null
  blob: BlobName | null
  /** It is no JSON, but was sealed by the key of its run (redacted-values.ts). */
  is_sealed?: true
}

/** What a record holds. */
export const inlineBytes = 64 * 1024

/** Throws a 422 if a text is no JSON, or larger or deeper than a value may be. */
export function needValue(json: string, depth: number = runBounds.depth): void {
  if (Buffer.byteLength(json) > evaluationBounds.outputBytes)
    throw tooLarge(`The value has more than ${evaluationBounds.outputBytes / 1024 ** 2} MiB`)
  let value: unknown
  try {
    value = JSON.parse(json)
  } catch (cause) {
    throw new Problem(422, 'no_json', 'The value is not JSON', undefined, { cause })
  }
  if (isDeeperThan(value, depth))
    throw tooLarge(`The value has objects and lists nested more than ${depth} deep`)
}

const tooLarge = (why: string): Problem => new Problem(422, 'too_large', 'The value is too large', why)

/** The value, not kept yet: a blob goes after an hour, unless `keepValue` is called. Not in a transaction. */
export async function storeValue(json: string): Promise<StoredValue> {
  const bytes = Buffer.byteLength(json)
  return bytes <= inlineBytes
    ? { bytes, json, blob: null }
    : { bytes, json: null, blob: await storeBlob(Buffer.from(json)) }
}

/** Call in the transaction that adds the value to a record. */
export async function keepValue(value: StoredValue | null | undefined): Promise<void> {
  if (value?.blob) await keepBlob(value.blob)
}

/** Call in the transaction that adds a value of another record to one. */
export async function shareValue(value: StoredValue | null | undefined): Promise<void> {
  if (value?.blob) await shareBlob(value.blob)
}

/** Call in the transaction that removes the records of the values. */
export async function dropValues(values: (StoredValue | null | undefined)[]): Promise<void> {
  const blobs = values.flatMap((value) => (value?.blob ? [value.blob] : []))
  if (blobs.length > 0) await dropReferences(blobs)
}

/** The value's JSON. */
export const readValue = async ({ json, blob }: StoredValue): Promise<string> =>
  json ?? (blob ? (await readBlob(blob)).toString() : 'null')
