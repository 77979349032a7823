import { ApplicationFailure, proxyLocalActivities } from '@temporalio/workflow'
import type { RagCollectionActivities } from '../../activities/retrieval/collections.ts'
import { durable, type Work } from '../durable.ts'
import { awaitUpload } from '../uploads.ts'
import { removeSnapshots } from './snapshots.ts'
import { steps, store } from './steps.ts'

const records = proxyLocalActivities<RagCollectionActivities>({
  startToCloseTimeout: '10 s', // a transaction
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** The store may lack further vectors if it was restored meanwhile. */
const mostRounds = 3

/** Waits for content that is sent in parts, and makes it the document's. */
async function receive({ id, operation_id, progress }: Work<unknown>): Promise<void> {
  progress('waiting for the content')
  const is = await awaitUpload('The content', () => records.uploadOfRagDocument(id, operation_id))
  if (is === 'taken') return
  progress('checking the content')
  await steps.checkRagUpload(id, operation_id)
  await records.takeUpload(id, operation_id)
}

/** Reads, embeds and indexes what was uploaded. What former attempts have done is recorded, and not done again. */
const index = async (work: Work<{ upload?: true }>) => {
  const { id, operation_id, input, progress, renew } = work
  if (input.upload) await receive(work)
  progress('reading the document')
  await steps.extractRagDocument(id, operation_id)
  for (let round = 0; round < mostRounds; round++) {
    progress('embedding its chunks')
    for (;;) {
      const { embedded, all } = await steps.embedRagDocument(id, operation_id)
      if (embedded === all) break
      progress(`embedding its chunks: ${embedded} of ${all} are done`)
      await renew()
    }
    progress('putting its chunks into the index')
    const indexed = await steps.indexRagDocument(id, operation_id)
    if (indexed) return { status: 'ready', stage: 'ready', ...indexed }
  }
  throw ApplicationFailure.nonRetryable(
    'The store keeps losing vectors of the document',
    'store_inconsistent',
  )
}

// A document that is cancelled or fails keeps its former version in the index, and what was done of the next for a retry.
const rules = { onFailure: 'error' }
export const createRagDocument = durable(index, rules)
export const updateRagDocument = durable(index, rules)
export const retryRagDocument = durable(index, rules)
/** The store was restored, and lacks the document. */
export const reindexRagDocument = durable(index, rules)

export const deleteRagDocument = durable<{ purge?: boolean }>(
  async (work) => {
    const { id, operation_id, input, progress } = work
    progress('removing it from the index')
    await store.removeRagDocument(id)
    if (input.purge) {
      progress('removing the snapshots that may have it')
      await removeSnapshots(work, await records.snapshotsWithRagDocument(id))
      await records.pruneRagDeletions(id)
    }
    progress('removing its stored content')
    await records.forgetContent(id, operation_id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
