import { setTimeout as sleep } from 'node:timers/promises'
import { compareResults, evalResult, type Attempt } from '../../lib/ai/eval-results.ts'
import { transaction } from '../database.ts'
import { closeLedger, ledgerOf } from '../llm/ledgers.ts'
import type { Purpose } from '../llm/purposes.ts'
import { deploymentOf } from './deployments.ts'
import { attemptsOf } from './eval-attempts.ts'
import {
  AiEval,
  type AiEvalDocument,
  type Compared,
  dropAttempts,
  frozenCasesOf,
  newestResult,
  resultOf,
} from './evals.ts'

// How a run of eval cases ends: with a result that does not change, or without one.

/** What its judges' calls of models are paid for. */
export const purposeOf = ({ _id: id }: Pick<AiEvalDocument, '_id'>) => ({ kind: 'eval', id }) as const

/** Makes the result of an eval whose attempts have all ended. Repeated, it changes nothing. */
export async function concludeEval(its: AiEvalDocument): Promise<void> {
  if (its.ended_at) return
  const { _id, tenant_id } = its
  const [cases, attempts] = await Promise.all([frozenCasesOf(its), attemptsOf(its)])
  const by = Map.groupBy(attempts, ({ case_id }) => case_id)
  const result = evalResult(cases, (case_id) =>
    (by.get(case_id) ?? [])
      .toSorted((one, other) => one.repeat - other.repeat)
      .flatMap(({ run_id, end }): Attempt[] => (end ? [{ run_id, ...end }] : [])),
  )
  const other = await primaryResult(its)
  const compared: Compared | null = other && {
    eval_id: other._id,
    deployment_id: other.deployment_id,
    version: other.version,
    ...compareResults(result, resultOf(other)),
  }
  await closeLedger(tenant_id, purposeOf(its))
  const judges = await settledUsage(tenant_id, purposeOf(its))
  await transaction(async () => {
    const { matchedCount } = await AiEval.updateOne(
      { _id, tenant_id, ended_at: null },
      {
        $set: {
          ended_at: new Date(),
          verdict: result.verdict,
          result_json: JSON.stringify(result),
          compared_json: JSON.stringify(compared),
        },
        $inc: judges,
      },
    )
    if (matchedCount) await dropAttempts(its)
  }, _id)
}

const settledWithinMs = 10_000
const lookEveryMs = 200

/**
 * What a purpose's calls of models took. A call is settled a little after its answer has come, so it waits for that; what is
 * not settled in time counts as it was reserved.
 */
export async function settledUsage(
  tenant_id: string,
  purpose: Purpose,
): Promise<{ tokens: number; cost_nano_usd: number }> {
  const untilMs = Date.now() + settledWithinMs
  for (;;) {
    const ledger = await ledgerOf(tenant_id, purpose)
    if (!ledger) return { tokens: 0, cost_nano_usd: 0 }
    if (Object.keys(ledger.open).length === 0 || Date.now() > untilMs) {
      const { tokens, cost_nano_usd } = ledger
      return { tokens, cost_nano_usd }
    }
    await sleep(lookEveryMs)
  }
}

/** The newest other result of the same cases on a primary: also of one that was a canary when they ran. */
async function primaryResult(its: AiEvalDocument): Promise<AiEvalDocument | null> {
  const { _id, tenant_id, workflow_id, case_set_sha256 } = its
  const primary = await deploymentOf(tenant_id, workflow_id, 'primary')
  const isPrimary = [{ role: 'primary' }, ...(primary ? [{ deployment_id: primary._id }] : [])]
  return newestResult(its, { _id: { $ne: _id }, case_set_sha256, $or: isPrimary })
}

/** Ends an eval without a result, so that no run of it begins any more. Repeated, it changes nothing. */
export async function closeEval({ _id, tenant_id }: AiEvalDocument): Promise<void> {
  await AiEval.updateOne({ _id, tenant_id, ended_at: null }, { $set: { ended_at: new Date() } })
  await closeLedger(tenant_id, purposeOf({ _id }))
}
