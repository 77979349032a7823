import { LlmCall } from './calls.ts'
import type { Purpose } from './purposes.ts'

// What a tenant's calls of models took, from their records.

/** By what the sums can be told apart. */
export const usageGroups = ['day', 'purpose', 'model'] as const
export type UsageGroup = (typeof usageGroups)[number]

const fieldsOf = {
  day: { day: { $dateToString: { date: '$created_at', format: '%Y-%m-%d' } } },
  purpose: { purpose_kind: '$purpose_kind', purpose_id: '$purpose_id' },
  model: { provider: '$provider', model: '$model' },
} as const

export interface UsageFilter {
  from: Date
  to: Date
  purpose_kind?: Purpose['kind'] | undefined
  purpose_id?: string | undefined
  model?: string | undefined
}

/** The sums of one group. What it is not grouped by is null. */
export interface UsageRow {
  day: string | null
  purpose_kind: Purpose['kind'] | null
  purpose_id: string | null
  provider: string | null
  model: string | null
  calls: number
  /** Of the calls, those that the gateway refused, and so took nothing. */
  refused_calls: number
  input_tokens: number
  output_tokens: number
  cache_read_tokens: number
  cache_write_tokens: number
  /** Of the calls with a known price. */
  cost_nano_usd: number
  /** Calls that took tokens at an unknown price. */
  unpriced_calls: number
}

const sum = (field: string) => ({ $sum: `$${field}` })
const countIf = (condition: object) => ({ $sum: { $cond: [condition, 1, 0] } })

/** The sums of a tenant's calls, the latest days first, and how many groups there are. */
export async function usageOf(
  tenant_id: string,
  { from, to, ...exactly }: UsageFilter,
  groups: readonly UsageGroup[],
  { limit, offset }: { limit: number; offset: number },
): Promise<{ rows: UsageRow[]; total: number }> {
  const given = Object.entries(exactly).filter(([, value]) => value !== undefined)
  const by = Object.assign({}, ...groups.map((group) => fieldsOf[group])) as Record<string, unknown>
  const [found] = await LlmCall.aggregate<{
    rows: (Omit<UsageRow, keyof typeof none> & { _id: Partial<typeof none> })[]
    groups: { total: number }[]
  }>([
    { $match: { tenant_id, created_at: { $gte: from, $lt: to }, ...Object.fromEntries(given) } },
    {
      $group: {
        _id: by,
        calls: { $sum: 1 },
        refused_calls: countIf({ $eq: ['$status', 'refused'] }),
        input_tokens: sum('input_tokens'),
        output_tokens: sum('output_tokens'),
        cache_read_tokens: sum('cache_read_tokens'),
        cache_write_tokens: sum('cache_write_tokens'),
        cost_nano_usd: sum('cost_nano_usd'),
        unpriced_calls: countIf({
          $and: [
            { $gt: [{ $add: ['$input_tokens', '$output_tokens'] }, 0] },
            { $eq: ['$cost_nano_usd', null] },
          ],
        }),
      },
    },
    {
      $facet: {
        rows: [{ $sort: { '_id.day': -1, _id: 1 } }, { $skip: offset }, { $limit: Math.max(1, limit) }],
        groups: [{ $count: 'total' }],
      },
    },
  ])
  const rows = limit === 0 ? [] : (found?.rows ?? [])
  return {
    rows: rows.map(({ _id, ...sums }) => ({ ...none, ..._id, ...sums })),
    total: found?.groups[0]?.total ?? 0,
  }
}

const none: Pick<UsageRow, 'day' | 'purpose_kind' | 'purpose_id' | 'provider' | 'model'> = {
  day: null,
  purpose_kind: null,
  purpose_id: null,
  provider: null,
  model: null,
}
