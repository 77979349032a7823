import { z } from 'zod'
import { InvalidInput } from '../../lib/problem.ts'
import { keptDays } from '../../models/llm/ledgers.ts'
import { purposeKinds } from '../../models/llm/purposes.ts'
import { usageGroups, usageOf } from '../../models/llm/usage.ts'
import { Id } from '../fields.ts'
import { operation } from '../operation.ts'

// What the tenant's calls of models took, by day, purpose and model.

const Instant = z.iso.datetime({ offset: true })
const dayMs = 86_400_000
const usualDays = 30

const UsageQuery = z.strictObject({
  from: Instant.optional().describe(
    `Default: ${usualDays} days before \`to\`. Usage is kept for ${keptDays} days`,
  ),
  to: Instant.optional().describe('Default: now'),
  group_by: z
    .string()
    .default(usageGroups.join(','))
    .transform((text) => text.split(','))
    .pipe(z.array(z.enum(usageGroups)).min(1))
    .describe(
      `One or more of ${usageGroups.join(', ')}, separated by commas; the fields of the others are null`,
    ),
  purpose_kind: z.enum(purposeKinds).optional(),
  purpose_id: Id.optional(),
  model: z.string().min(1).max(200).optional(),
  limit: z.coerce
    .number()
    .int()
    .min(0)
    .default(20)
    .transform((limit) => Math.min(limit, 100))
    .describe('Groups to return; values above 100 are capped at 100'),
  offset: z.coerce.number().int().min(0).max(1_000_000).default(0).describe('Groups to skip'),
})

const count = z.int().nonnegative()
const UsageView = z
  .strictObject({
    day: z.iso.date().nullable().describe('The day in UTC'),
    purpose_kind: z.enum(purposeKinds).nullable(),
    purpose_id: z.string().nullable(),
    provider: z.string().nullable(),
    model: z.string().nullable(),
    calls: count,
    refused_calls: count.describe('How many of these calls the gateway refused'),
    input_tokens: count,
    output_tokens: count,
    cache_read_tokens: count.describe('The input tokens that the provider read from its cache'),
    cache_write_tokens: count.describe('The input tokens that the provider wrote to its cache'),
    cost_nano_usd: count.describe('The cost of calls with a known price, in billionths of a dollar'),
    unpriced_calls: count.describe('Calls that took tokens at an unknown price'),
  })
  .meta({ id: 'LlmUsage' })

export const llmUsage = [
  operation({
    method: 'GET',
    path: '/api/v1/llm-usage',
    permission: 'llm_usage:read',
    summary: 'Sum up the tokens and the cost of model calls',
    query: UsageQuery,
    responses: {
      200: z.strictObject({ usage: z.array(UsageView), total: z.int().describe('The number of all groups') }),
    },
    handle: async ({ caller, query }) => {
      const { from: given, to: until, group_by, limit, offset, ...exactly } = query
      const to = until === undefined ? new Date() : new Date(until)
      const from = given === undefined ? new Date(to.getTime() - usualDays * dayMs) : new Date(given)
      if (from >= to)
        throw new InvalidInput(400, [
          { pointer: '/from', message: until === undefined ? 'must be in the past' : 'must be before to' },
        ])
      const found = await usageOf(caller.tenant_id, { from, to, ...exactly }, group_by, { limit, offset })
      return { usage: found.rows, total: found.total }
    },
  }),
]
