import { LlmCall } from './calls.ts'

// What the nodes of a run took, from the records of its calls of models.

/** What calls of models took. */
export interface ModelUsage {
  /** Of a call under way, what it has reserved. */
  tokens: number
  /** Null: a call took tokens at an unknown price. */
  cost_nano_usd: number | null
  /** The lists of prices by which the cost was counted: one, unless an operator changed it meanwhile. */
  prices_versions: string[]
}

export const noModelUsage: ModelUsage = { tokens: 0, cost_nano_usd: 0, prices_versions: [] }

const taken = { $add: ['$input_tokens', '$output_tokens'] }
const isUnpriced = { $and: [{ $gt: [taken, 0] }, { $eq: ['$cost_nano_usd', null] }] }

/** By node. An answer that was kept is a call that took nothing. */
export async function usageByNode(tenant_id: string, run_id: string): Promise<Map<string, ModelUsage>> {
  const found = await LlmCall.aggregate<{
    _id: string
    tokens: number
    cost_nano_usd: number
    unpriced: number
    versions: (string | null)[]
  }>([
    { $match: { tenant_id, purpose_id: run_id, purpose_kind: 'run', node: { $type: 'string' } } },
    {
      $group: {
        _id: '$node',
        tokens: { $sum: { $cond: [{ $eq: ['$status', 'open'] }, '$reserved_tokens', taken] } },
        cost_nano_usd: { $sum: '$cost_nano_usd' },
        unpriced: { $sum: { $cond: [isUnpriced, 1, 0] } },
        versions: { $addToSet: '$prices_version' },
      },
    },
  ])
  return new Map(
    found.map(({ _id, tokens, cost_nano_usd, unpriced, versions }) => [
      _id,
      {
        tokens,
        cost_nano_usd: unpriced > 0 ? null : cost_nano_usd,
        prices_versions: versions.filter((version) => version !== null).toSorted(),
      },
    ]),
  )
}
