import { stepNamed } from '../../lib/ai/steps.ts'
import { defaults } from '../../lib/ai/node-kinds.ts'
import { NotFound } from '../../lib/problem.ts'
import type { Passages } from '../../lib/runner-protocol.ts'
import { RagCollection } from '../retrieval/collections.ts'
import type { Embeddings } from '../retrieval/embeddings.ts'
import { search } from '../retrieval/search.ts'
import { needOpenRun, type RunnerOf, versionOfRunner } from './run-nodes.ts'

/**
 * Searches, for a node of kind `retrieve`, the collection that the version names, as it was found by its publication. Throws
 * NotFound, `attempt_over` if the run has ended, and as `search`.
 */
export async function retrieveForRun(
  embeddings: Embeddings,
  runner: RunnerOf,
  run_id: string,
  name: string,
  query: string,
): Promise<Passages> {
  const { tenant_id } = runner
  await needOpenRun(runner, run_id)
  const { spec, uses } = await versionOfRunner(runner)
  const node = stepNamed(spec.nodes, name)?.step
  if (node?.kind !== 'retrieve') throw new NotFound('node')
  const use = uses.find(({ kind, reference }) => kind === 'collection' && reference === node.collection)
  const collection = use?.id && (await RagCollection.findOne({ _id: use.id, tenant_id }, { name: 1 }).lean())
  if (!collection) throw new NotFound('collection')
  const asked = { query, mode: 'hybrid' as const, k: node.top_k ?? defaults.top_k }
  const { hits } = await search(embeddings, { tenant_id }, collection.name, asked)
  return {
    passages: hits.map(({ text, score, document, locator }) => ({
      text,
      score,
      document_id: document.id,
      document: document.name,
      place: locator,
    })),
  }
}
