import { nanoUsdOf } from '../../lib/ai/spec.ts'
import { NotFound } from '../../lib/problem.ts'
import type { ModelGrant } from '../../lib/runner-protocol.ts'
import type { ProviderName } from '../connectors/catalogue.ts'
import { Connector } from '../connectors/connectors.ts'
import { LlmCall } from '../llm/calls.ts'
import { closeLedger, ledgerOf } from '../llm/ledgers.ts'
import { type ModelUsage, usageByNode } from '../llm/node-usage.ts'
import { issueToken } from '../llm/tokens.ts'
import { needOpenRun, type RunnerOf, versionOfRunner } from './run-nodes.ts'
import type { AiRunDocument } from './runs.ts'

// Calls of models by runs. Each run has a ledger of its own, with its version's budget.

type Run = Pick<AiRunDocument, '_id' | 'tenant_id'>
const purposeOf = ({ _id: id }: Pick<Run, '_id'>) => ({ kind: 'run', id }) as const

/**
 * A token for calls of one of the version's models by an open run. Throws NotFound, `attempt_over` if the run has ended, and as
 * `issueToken`.
 */
export async function grantModel(runner: RunnerOf, run_id: string, alias: string): Promise<ModelGrant> {
  const { tenant_id } = runner
  const [{ spec, uses }] = await Promise.all([versionOfRunner(runner), needOpenRun(runner, run_id)])
  const { models = {}, budget } = spec
  const model = Object.hasOwn(models, alias) ? models[alias] : undefined
  if (!model) throw new NotFound('model')
  const use = uses.find(({ kind, reference }) => kind === 'connector' && reference === model.connector)
  if (!use) throw new NotFound('connector')
  const which =
    use.id === null ? { provider: use.reference as ProviderName, is_default: true } : { _id: use.id }
  const connector = await Connector.findOne({ tenant_id, ...which }, { provider: 1 }).lean()
  if (!connector) throw new NotFound('connector')
  const run = { _id: run_id, tenant_id }
  const grant = { tenant_id, purpose: purposeOf(run), connector_id: connector._id, fallbacks: [] }
  const all = { tokens: budget.tokens ?? null, nano_usd: nanoUsdOf(budget) }
  const { token } = await issueToken(grant, all)
  // If it has ended meanwhile, its ledger may have been opened after that.
  await needOpenRun(runner, run_id).catch(async (error: unknown) => {
    await endModelCalls(run)
    throw error
  })
  return { token, provider: connector.provider }
}

/** Whether all that the run's nodes have called is counted. */
export const callsAreSettled = async ({ tenant_id, _id: purpose_id }: Run): Promise<boolean> =>
  (await LlmCall.exists({ tenant_id, purpose_id, node: { $type: 'string' }, settled: false })) === null

/** Ends the run's tokens. Calls that are under way go on. */
export const endModelCalls = (run: Run): Promise<void> => closeLedger(run.tenant_id, purposeOf(run))

/** What the calls of models of each of a run's nodes have taken. A node that is not named has made none. */
export const nodeUsageOf = ({ tenant_id, _id }: Run): Promise<Map<string, ModelUsage>> =>
  usageByNode(tenant_id, _id)

/** What all of a run's calls have taken, and those of each node. */
export async function modelUsageOf(run: Run): Promise<ModelUsage & { byNode: Map<string, ModelUsage> }> {
  const [byNode, ledger] = await Promise.all([nodeUsageOf(run), ledgerOf(run.tenant_id, purposeOf(run))])
  const all = [...byNode.values()]
  return {
    tokens: ledger?.tokens ?? 0,
    cost_nano_usd: all.some((one) => one.cost_nano_usd === null) ? null : (ledger?.cost_nano_usd ?? 0),
    prices_versions: [...new Set(all.flatMap((one) => one.prices_versions))].toSorted(),
    byNode,
  }
}
