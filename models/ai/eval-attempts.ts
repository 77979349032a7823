import type { AttemptEnd, FrozenCase } from '../../lib/ai/eval-results.ts'
import { evalBounds } from '../../lib/ai/bounds.ts'
import { InvalidInput } from '../../lib/problem.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { AiEval, AiEvalAttempt, type AiEvalAttemptDocument, type AiEvalDocument } from './evals.ts'
import { acceptEvalRun } from './eval-runs.ts'
import type { AiRunDocument } from './runs.ts'

// The attempts at eval cases: each is one run, however often it is asked for.

type Its = Pick<
  AiEvalDocument,
  '_id' | 'tenant_id' | 'workflow_id' | 'deployment_id' | 'version' | 'requested_by'
>

/** The eval has ended, or was stopped: nothing more of it begins or is recorded. */
export class EvalOver extends Error {
  override readonly name = 'EvalOver'
}

export const attemptsOf = ({ _id, tenant_id }: Its): Promise<AiEvalAttemptDocument[]> =>
  AiEvalAttempt.find({ tenant_id, eval_id: _id }).lean()

const attemptId = ({ _id }: Its, case_id: string, repeat: number): string => `${_id}:${case_id}:${repeat}`

/**
 * Begins an attempt: accepts its run, or records that the version refuses the input. `run`: as it was accepted; null: this
 * attempt was begun before, or has no run. Throws EvalOver, and as acceptEvalRun.
 */
export async function beginAttempt(
  its: Its,
  { id: case_id, input }: Pick<FrozenCase, 'id' | 'input'>,
  repeat: number,
): Promise<{ attempt: AiEvalAttemptDocument; run: AiRunDocument | null }> {
  const { _id: eval_id, tenant_id } = its
  const at = { _id: attemptId(its, case_id, repeat), tenant_id, eval_id, case_id, repeat }
  const insert = async (run_id: string | null, end: AttemptEnd | null): Promise<void> => {
    await needOpen(its, { runs_begun: 1, runs_ended: end ? 1 : 0 })
    await new AiEvalAttempt({ ...at, run_id, end }).save()
  }
  try {
    const run = await acceptEvalRun(its, { eval_id, case_id, repeat }, input, (run_id) =>
      insert(run_id, null),
    )
    return { attempt: { ...at, run_id: run._id, end: null }, run }
  } catch (error) {
    if (error instanceof InvalidInput) {
      const [{ pointer, message } = { pointer: '', message: error.message }] = error.extensions['errors'] as {
        pointer: string
        message: string
      }[]
      const fault = { code: 'invalid_input', message: short(`${pointer} ${message}`) }
      const end: AttemptEnd = { outcome: 'fail', reasons: null, error: fault }
      await transaction(() => insert(null, end)).catch(unlessThere)
    } else unlessThere(error)
    const attempt = await AiEvalAttempt.findOne({ _id: at._id, tenant_id }).lean()
    if (!attempt) throw new EvalOver('its attempts are gone', { cause: error })
    return { attempt, run: null }
  }
}

/** Another worker has begun the attempt. */
function unlessThere(error: unknown): void {
  if (!(isDuplicateKey(error) && '_id' in error.keyPattern)) throw error
}

/** Counts, if the eval goes on. What stops it writes the same document. */
async function needOpen({ _id, tenant_id }: Its, counts: Record<string, number>): Promise<void> {
  const { matchedCount } = await AiEval.updateOne({ _id, tenant_id, ended_at: null }, { $inc: counts })
  if (!matchedCount) throw new EvalOver('it takes no more attempts')
}

const short = (text: string): string => text.slice(0, evalBounds.reasonsChars)

/** Records how an attempt has ended, once. Throws EvalOver. */
export const endAttempt = (
  its: Its,
  { _id }: AiEvalAttemptDocument,
  { outcome, reasons, error }: AttemptEnd,
  { tokens, cost_nano_usd }: { tokens: number; cost_nano_usd: number },
): Promise<void> =>
  transaction(async () => {
    const end: AttemptEnd = {
      outcome,
      reasons: reasons && short(reasons),
      error: error && { code: error.code, message: short(error.message) },
    }
    const { tenant_id } = its
    const { modifiedCount } = await AiEvalAttempt.updateOne({ _id, tenant_id, end: null }, { $set: { end } })
    if (modifiedCount) await needOpen(its, { runs_ended: 1, tokens, cost_nano_usd })
  }, its._id)
