import { proxyActivities } from '@temporalio/workflow'
import type { RagCollectionActivities } from '../../activities/retrieval/collections.ts'
import { durable } from '../durable.ts'

/** What asks the store, or goes through many records. */
export const store = proxyActivities<RagCollectionActivities>({
  startToCloseTimeout: '1 hour', // of thousands of documents; a retry goes on
  heartbeatTimeout: '10 s', // detects a killed worker soon
  // activities/retrieval/patience.ts counts the attempts.
  retry: { initialInterval: '1 s', backoffCoefficient: 2, maximumInterval: '1 minute' },
  cancellationType: 'WAIT_CANCELLATION_COMPLETED', // what supersedes it must not overtake it
})

/** Has nothing to undo: an empty collection in the store goes away with the record, or when its name is used again. */
export const createRagCollection = durable(
  async ({ id, progress }) => {
    progress('making the collection in the store')
    await store.makeRagCollection(id)
    return { status: 'ready', in_store: true }
  },
  { onFailure: 'error' },
)

/** Deletes a collection with its documents. */
export const deleteRagCollection = durable(
  async ({ id, progress }) => {
    progress('ending the work on its documents')
    await store.endRagWork({ collection_id: id })
    progress('dropping the collection in the store')
    await store.dropRagCollection(id)
    progress('forgetting its documents')
    await store.forgetRagPart({ collection_id: id })
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
