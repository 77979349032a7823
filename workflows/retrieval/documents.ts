import { ApplicationFailure, proxyLocalActivities } from '@temporalio/workflow'
import type { RagCollectionActivities } from '../../activities/retrieval/collections.ts'
import { durable, type Work } from '../durable.ts'
import { steps, store } from './steps.ts'

const records = proxyLocalActivities<RagCollectionActivities>({
  startToCloseTimeout: '10 s', // a transaction
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** The store may name further vectors that it lacks once: if it was restored meanwhile. */
const mostRounds = 3

/** Reads, embeds and indexes what was uploaded. What former attempts have done is recorded, and not done again. */
const index = async ({ id, operation_id, progress, renew }: Work<unknown>) => {
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

export const deleteRagDocument = durable(
  async ({ id, operation_id, progress }) => {
    progress('removing it from the index')
    await store.removeRagDocument(id)
    progress('forgetting its content')
    await records.forgetContent(id, operation_id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
