import type { AiDeploymentActivities } from '../../activities/ai/deployments.ts'
import type { AiEvalActivities } from '../../activities/ai/evals.ts'
import type { AiRunActivities, AiRunEndActivities } from '../../activities/ai/runs.ts'
import type { AiValueActivities, AiWaitActivities } from '../../activities/ai/waits.ts'
import type { RagCollectionActivities } from '../../activities/retrieval/collections.ts'
import type { RagDocumentActivities } from '../../activities/retrieval/documents.ts'
import type { RagEmbedderActivities } from '../../activities/retrieval/embedders.ts'
import type { RagStoreActivities } from '../../activities/retrieval/stores.ts'
import type { RunnerActivities } from '../../activities/runner/nodes.ts'
import type { Words } from './words.ts'

/** Of AI workflows and retrieval. */
export const aiWords: Words<
  AiDeploymentActivities &
    AiRunActivities &
    AiRunEndActivities &
    AiWaitActivities &
    AiValueActivities &
    AiEvalActivities &
    RunnerActivities &
    RagStoreActivities &
    RagCollectionActivities &
    RagDocumentActivities &
    RagEmbedderActivities
> = {
  planAiRunner: (id) => `Plan the runner of AI deployment ${id}`,
  noteAiDeployment: (id) => `Record the runner of AI deployment ${id}`,
  endAiRunner: (id) => `End what the runner of AI deployment ${id} may do`,
  othersOfAiDeployment: (id) => `List what ends with AI deployment ${id}`,
  countOpenAiRuns: (id) => `Count the open runs of AI deployment ${id}`,
  undeployAiRuns: (id) => `End the runs of AI deployment ${id}`,

  beginAiRun: (id) => `Begin run ${id}`,
  skipAiRunNodes: (_run, names) => `Skip ${names.join(', ')}`,
  lookAtAiRow: (_run, names) => `Look how far the row ${names.join(' → ')} is`,
  settleAiRunNode: (_run, node, status) =>
    `Record that ${node} ${status === 'failed' ? 'failed' : 'was cancelled'}`,
  endAiRun: ({ _id }, { status }) => `Record that run ${_id} has ended: ${status}`,
  lookAtAiDecision: (_run, node) => `Look for the decision of ${node}`,
  cancelAiChild: ({ _id }) => `Cancel run ${_id}`,
  hasAiChildEnded: ({ _id }) => `Look whether run ${_id} has ended`,
  failAiItem: (_run, map, item) => `Record that item ${item} of ${map} failed`,
  takeAiChildOutput: (_run, node, _attempt, { _id }) => `Take the output of run ${_id} as that of ${node}`,
  gatherAiItems: (_run, node, all) => `Gather the ${all} items of ${node}`,

  advanceAiEval: (id) => `Carry on eval run ${id}`,
  concludeAiEval: (id) => `Conclude eval run ${id}`,
  stopAiEval: (id) => `Stop eval run ${id}`,

  // Nodes and the output have their names as summaries (../ai/runner.ts).
  answerOnRunner: () => 'Wait until the runner answers',
  runNodeOnRunner: (_run, node) => node,
  callWorkflowOnRunner: (_run, node) => node,
  giveOutputOnRunner: () => 'output',

  planRagStore: (id) => `Plan store ${id}`,
  noteRagStore: (id) => `Record the parts of store ${id}`,
  renewStoreSecrets: (id) => `Make new secrets for store ${id}`,
  awaitRagStore: (id) => `Wait until store ${id} answers`,
  planRagRestore: (id) => `Plan the restore of store ${id}`,
  noteRagRestored: (id) => `Record that store ${id} is restored`,
  surplusRagSnapshots: (id) => `List the snapshots that store ${id} no longer keeps`,
  partsOfRagStore: (id) => `List the parts of store ${id}`,
  makeRagCollection: (id) => `Make collection ${id} in its store`,
  settleRagEmbedder: (id) => `Record the embedder of collection ${id}`,
  dropRagCollection: (id) => `Remove collection ${id} from its store`,
  removeRagDocument: (id) => `Remove document ${id} from its store`,
  snapshotsWithRagDocument: (id) => `List the snapshots that have document ${id}`,
  pruneRagDeletions: (id) => `Forget deletions that no snapshot needs, in the store of document ${id}`,
  deleteFromRagStore: (id) => `Repeat deletions in the restored store ${id}`,
  reindexRagStore: (id) => `Index documents again that the restored store ${id} lacks`,
  tidyRagStore: (id) => `Tidy store ${id}`,
  forgetContent: (id) => `Remove the content of document ${id}`,
  uploadOfRagDocument: (id) => `Look at the upload of document ${id}`,
  takeUpload: (id) => `Take the upload of document ${id}`,
  endRagWork: (of) => `End what is under way in ${partOf(of)}`,
  forgetRagPart: (of) => `Remove the documents of ${partOf(of)}`,
  checkRagUpload: (id) => `Check the upload of document ${id}`,
  extractRagDocument: (id) => `Read document ${id} into chunks`,
  embedRagDocument: (id) => `Embed chunks of document ${id}`,
  indexRagDocument: (id) => `Put document ${id} into its store`,
  embedRagCollection: (id) => `Embed chunks of collection ${id}`,
  useNextRagEmbedder: (id) => `Switch collection ${id} to its next embedder`,
}

const partOf = (of: Parameters<RagCollectionActivities['endRagWork']>[0]): string =>
  'store_id' in of ? `store ${of.store_id}` : `collection ${of.collection_id}`
