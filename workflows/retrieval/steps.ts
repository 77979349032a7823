import { proxyActivities } from '@temporalio/workflow'
import type { RagCollectionActivities } from '../../activities/retrieval/collections.ts'
import type { RagDocumentActivities } from '../../activities/retrieval/documents.ts'
import type { RagEmbedderActivities } from '../../activities/retrieval/embedders.ts'
import { documentsQueue } from '../../lib/operation-workflows.ts'

const usual = {
  heartbeatTimeout: '10 s', // detects a killed worker soon
  // activities/retrieval/patience.ts counts the attempts.
  retry: { initialInterval: '1 s', backoffCoefficient: 2, maximumInterval: '1 minute' },
  // What supersedes it must not overtake it, and an operation has ended when nothing of it is written any more.
  cancellationType: 'WAIT_CANCELLATION_COMPLETED',
} as const

/** What asks the store, or goes through many records. */
export const store = proxyActivities<RagCollectionActivities>({
  ...usual,
  startToCloseTimeout: '1 hour', // of thousands of documents; a retry goes on
})

/** What reads and embeds. */
export const steps = proxyActivities<RagDocumentActivities & RagEmbedderActivities>({
  ...usual,
  taskQueue: documentsQueue,
  // Each ends by itself before: a reading after 10 minutes, the store's answer after 2, a turn of embedding when the model
  // gateway has answered the batch under way, which may take 16 for each 32 texts.
  startToCloseTimeout: '2 hours',
})
