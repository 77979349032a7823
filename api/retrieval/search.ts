import { z } from 'zod'
import type { Filter } from '../../images/rag/store.ts'
import { PermissionDenied } from '../../lib/problem.ts'
import { connectorNamed } from '../../models/retrieval/embedder-choice.ts'
import type { Rerank } from '../../models/retrieval/rerank.ts'
import { search } from '../../models/retrieval/search.ts'
import { limits } from '../../models/retrieval/store-rules.ts'
import { Id } from '../fields.ts'
import { type Caller, operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { byName, Model, noEmbeddings, path } from './collections.ts'
import { Metadata } from './documents.ts'

const Value = z.union([z.string(), z.number(), z.boolean()])
const Condition = z.strictObject({
  eq: Value.optional(),
  in: z.array(Value).max(limits.filterValues).optional(),
  gt: z.number().optional(),
  gte: z.number().optional(),
  lt: z.number().optional(),
  lte: z.number().optional(),
  exists: z.boolean().optional(),
})

const Part = z.strictObject({ score: z.number(), rank: z.int() })
const Locator = z.union([
  z.strictObject({ page: z.int(), last_page: z.int() }),
  z.strictObject({ line: z.int(), last_line: z.int() }),
  z.strictObject({ pointer: z.string(), last_pointer: z.string() }),
])
const HitView = z
  .strictObject({
    document: z.strictObject({ id: Id, name: z.string() }),
    version: z.int().describe('The version of the document'),
    metadata: Metadata,
    position: z.int().describe('The position of the chunk in its document, from 0'),
    text: z.string().describe('The chunk’s own text, which does not overlap with other chunks'),
    context: z
      .string()
      .describe('The headings above the text and the header of its table, which are embedded with it'),
    headings: z.array(z.string()).describe('The headings above the text, the outermost first'),
    locator: Locator.nullable().describe(
      'The first and last page, line or JSON pointer of the text; null if the text was put into the store without the API',
    ),
    score: z.number(),
    parts: z
      .strictObject({ vector: Part.nullable(), text: Part.nullable(), rerank: Part.nullable() })
      .describe(
        'The cosine, BM25 and the ranking model’s score, with the place in each list; null: not in that list',
      ),
  })
  .meta({ id: 'RagHit' })

const mostRanked = 100
const usuallyRanked = 50
const RerankBody = Model.extend({
  top: z
    .int()
    .min(1)
    .max(mostRanked)
    .optional()
    .describe(
      `How many of the best hits the model ranks, at least \`k\`. Default: ${usuallyRanked}, or \`k\` if that is more`,
    ),
}).describe('Lets a connector’s model rank the hits, which needs the permission `connectors:use`')

const RerankView = z
  .strictObject({
    connector_id: Id,
    model: z.string(),
    ranked: z.int().describe('How many hits the model has ranked'),
    failure: z
      .strictObject({ code: z.string(), reason: z.string() })
      .nullable()
      .describe('Why the model did not rank the hits; null: it did'),
  })
  .meta({ id: 'RagRerank' })

export const makeRagSearch = ({ embeddings = noEmbeddings }: OperationsContext) => [
  operation({
    method: 'POST',
    path: `${path}/{name}/search`,
    permission: 'rag:read',
    summary: 'Search a collection by meaning, by words, or by both',
    params: byName,
    body: z.strictObject({
      query: z.string().trim().min(1).max(limits.queryText),
      k: z.int().min(1).max(100).default(10).describe('The largest number of hits'),
      mode: z.enum(['hybrid', 'vector', 'text']).default('hybrid'),
      filter: z
        .record(z.string(), z.union([Value, Condition]))
        .optional()
        .describe('Conditions on metadata: for each field a value, or conditions that must all hold'),
      min_score: z
        .number()
        .optional()
        .describe(
          'The lowest `score` of a hit: the cosine (`vector`), BM25 (`text`), or the sum of 1 / (60 + rank) (`hybrid`)',
        ),
      rerank: RerankBody.optional(),
    }),
    responses: {
      200: z.strictObject({
        hits: z.array(HitView).describe('Best first'),
        rerank: RerankView.nullable().describe('What the reranking did; null: the search asked for none'),
      }),
    },
    refuses: [403],
    handle: async ({ caller, params: { name }, body }) =>
      search(embeddings, caller, name, {
        ...body,
        filter: body.filter as Filter | undefined,
        rerank: body.rerank && (await rerankFor(caller, body.rerank, body.k)),
      }),
  }),
]

/** Throws PermissionDenied and InvalidInput. */
async function rerankFor(
  { tenant_id, permissions }: Caller,
  { connector, model, top = usuallyRanked }: z.output<typeof RerankBody>,
  k: number,
): Promise<Rerank> {
  if (!permissions.has('connectors:use')) throw new PermissionDenied('connectors:use')
  const { _id: connector_id } = await connectorNamed(tenant_id, connector, '/rerank/connector')
  return { connector_id, model, top: Math.max(top, k) }
}
