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
    version: z.int().describe('Of the document'),
    metadata: Metadata,
    position: z.int().describe('Of the chunk in its document; the first is 0'),
    text: z.string().describe('The chunk’s own: nothing that other chunks have, too'),
    context: z
      .string()
      .describe('The headings above it and the header of its table, as they are embedded with it'),
    headings: z.array(z.string()).describe('Above the text, the outermost first'),
    locator: Locator.nullable().describe(
      'The first and last page, line or JSON pointer of the text; null if it was put into the store beside the API',
    ),
    score: z.number(),
    parts: z
      .strictObject({ vector: Part.nullable(), text: Part.nullable(), rerank: Part.nullable() })
      .describe(
        'Cosine, BM25, and the score of the model that ranks, with the place in each list; null: not among its best, or not ranked',
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
    .describe(`So many of the best hits are ranked, at least \`k\`; by default ${usuallyRanked}, or \`k\``),
}).describe('Lets a model of a connector rank the hits, whose use needs `connectors:use`')

const RerankView = z
  .strictObject({
    connector_id: Id,
    model: z.string(),
    ranked: z.int().describe('How many hits the model has ranked'),
    failure: z
      .strictObject({ code: z.string(), reason: z.string() })
      .nullable()
      .describe('Why the hits are in the order of the search; null: the model has ranked them'),
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
      k: z.int().min(1).max(100).default(10).describe('How many hits at most'),
      mode: z.enum(['hybrid', 'vector', 'text']).default('hybrid'),
      filter: z
        .record(z.string(), z.union([Value, Condition]))
        .optional()
        .describe('By metadata: a value, or conditions that all have to hold'),
      min_score: z
        .number()
        .optional()
        .describe(
          'Of `score`: the cosine (`vector`), BM25 (`text`), or the sum of 1 / (60 + rank) (`hybrid`)',
        ),
      rerank: RerankBody.optional(),
    }),
    responses: {
      200: z.strictObject({
        hits: z.array(HitView).describe('Best first'),
        rerank: RerankView.nullable().describe('Null: none was asked for'),
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
