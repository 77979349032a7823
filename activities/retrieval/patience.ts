import { activityInfo, ApplicationFailure } from '@temporalio/activity'
import { ExtractionEnded } from '../../drivers/document-errors.ts'
import { BlobMissing } from '../../lib/blob-store.ts'
import { ModelFailed } from '../../models/retrieval/embeddings.ts'
import { type ErrorCode, StoreError } from '../../models/retrieval/store-rules.ts'

// How long work on documents waits for a store or an embedder that is away. The pauses between attempts are those of
// workflows/retrieval/documents.ts: they grow to a minute, so that 35 attempts take half an hour.
const usualAttempts = 35

/** Another attempt may succeed: the store is away, restarts with a new token, or has failed by itself. */
const passing: ErrorCode[] = ['unavailable', 'unauthenticated', 'internal']

/**
 * Runs what asks the store or the model gateway, or reads a document. Throws a failure in words, which is not retried if a
 * retry cannot help or this was the last attempt. `mostAttempts`: for what has to happen, without end.
 */
export async function patiently<T>(
  asking: () => Promise<T>,
  { mostAttempts = usualAttempts } = {},
): Promise<T> {
  const failureOf = (error: Error & { code: string }, passes: string | null) =>
    failure(error, passes, activityInfo().attempt >= mostAttempts)
  try {
    return await asking()
  } catch (error) {
    if (error instanceof StoreError)
      throw failureOf(error, passing.includes(error.code) ? 'store_unavailable' : null)
    if (error instanceof ModelFailed) throw failureOf(error, error.permanent ? null : 'embedder_unavailable')
    if (error instanceof ExtractionEnded) throw failureOf(error, error.code)
    if (error instanceof BlobMissing)
      throw ApplicationFailure.nonRetryable(
        'The stored content of the document is gone: upload it again',
        'content_gone',
      )
    throw error
  }
}

/** `passes`: the code, if another attempt may succeed. */
function failure(
  error: Error & { code: string },
  passes: string | null,
  isLast: boolean,
): ApplicationFailure {
  const given = passes !== null && isLast ? `, after attempts for half an hour` : ''
  return ApplicationFailure.create({
    message: `${error.message}${given}`,
    type: passes ?? error.code,
    nonRetryable: passes === null || isLast,
    cause: error,
  })
}
