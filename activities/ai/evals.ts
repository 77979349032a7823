import { setTimeout as sleep } from 'node:timers/promises'
import { ApplicationFailure, cancellationSignal } from '@temporalio/activity'
import type { Client } from '@temporalio/client'
import { evalBounds } from '../../lib/ai/bounds.ts'
import { type AttemptEnd, endBy, endWithout, type FrozenCase } from '../../lib/ai/eval-results.ts'
import { judged } from '../../lib/ai/judging.ts'
import { runWorkflowId } from '../../lib/operation-workflows.ts'
import { Problem } from '../../lib/problem.ts'
import { mapAtOnce } from '../../lib/queue.ts'
import { attemptsOf, beginAttempt, endAttempt, EvalOver } from '../../models/ai/eval-attempts.ts'
import { closeEval, concludeEval, settledUsage } from '../../models/ai/eval-ends.ts'
import {
  type AiEvalAttemptDocument,
  type AiEvalDocument,
  aiEvalResource,
  dropAttempts,
  evalOf,
  frozenCasesOf,
} from '../../models/ai/evals.ts'
import { judgeOf } from '../../models/ai/judges.ts'
import { markedEnd } from '../../lib/ai/judging.ts'
import { wholeOf } from '../../models/ai/run-redaction.ts'
import { endRun } from '../../models/ai/run-ends.ts'
import { AiRun, type RunSummary } from '../../models/ai/runs.ts'
import { noteStep } from '../../models/operations.ts'
import { cancelOperation, startRun } from '../../workflows/starters.ts'
import { NodeFault } from '../runner/node-faults.ts'
import type { AskJudge } from './judge.ts'

/** How far a run of eval cases is. */
export interface EvalProgress {
  ended: number
  of: number
}

/** A round begins nothing and waits for nothing after this time, so that evals of other tenants have their turn. */
const roundMs = 20_000

export interface EvalTools {
  client: Client
  askJudge: AskJudge
}

/** Activities of runs of eval cases. What they have done is in the records: after a kill, the next one goes on from there. */
export const makeAiEvalActivities = (tools: EvalTools) => ({
  /** Carries out attempts for a while. Throws `undeployed` if the deployment is gone. */
  async advanceAiEval(id: string, operation_id: string): Promise<EvalProgress> {
    const its = await needEval(id)
    const signal = cancellationSignal()
    const [cases, attempts] = await Promise.all([frozenCasesOf(its), attemptsOf(its)])
    const overAt = Date.now() + roundMs
    const round: Round = { ...tools, its, signal, isOver: () => signal.aborted || Date.now() > overAt }
    let fault: Error | undefined
    await mapAtOnce(leftOf(cases, attempts), evalBounds.atOnce, async (one) => {
      if (fault || round.isOver()) return
      try {
        if (await carryOut(round, one)) await noteProgress(id, operation_id)
      } catch (error) {
        fault ??= error instanceof Error ? error : new Error(String(error))
      }
    })
    // The eval was stopped, which cancels this activity, too.
    if (fault && !(fault instanceof EvalOver)) throw fault
    return progressOf(await needEval(id))
  },

  async concludeAiEval(id: string): Promise<void> {
    await concludeEval(await needEval(id))
  },

  /** Ends the runs of an eval that has no result. The records come first, as in undeployAiRuns. */
  async stopAiEval(id: string): Promise<void> {
    const its = await evalOf(id)
    if (!its) return
    await closeEval(its)
    const { tenant_id, workflow_id } = its
    const ids = (await attemptsOf(its)).flatMap(({ run_id }) => run_id ?? [])
    const open = await AiRun.find({ tenant_id, _id: { $in: ids }, open: true }, { _id: 1 }).lean()
    for (const { _id } of open) await endRun({ _id, workflow_id }, { status: 'cancelled' })
    const cancelled = await AiRun.find(
      { tenant_id, _id: { $in: ids }, status: 'cancelled' },
      { _id: 1 },
    ).lean()
    await mapAtOnce(cancelled, evalBounds.atOnce, ({ _id }) =>
      cancelOperation(tools.client, runWorkflowId(_id)),
    )
    await dropAttempts(its)
  },
})

export type AiEvalActivities = ReturnType<typeof makeAiEvalActivities>

/** Throws `not_found`. */
async function needEval(id: string): Promise<AiEvalDocument> {
  const its = await evalOf(id)
  if (!its) throw ApplicationFailure.nonRetryable(`No such ${aiEvalResource.title}`, 'not_found')
  return its
}

const progressOf = ({ runs_ended: ended, runs: of }: AiEvalDocument): EvalProgress => ({ ended, of })

async function noteProgress(id: string, operation_id: string): Promise<void> {
  const its = await needEval(id)
  const { ended, of } = progressOf(its)
  const usd = (its.cost_nano_usd / 1e9).toFixed(4)
  await noteStep(operation_id, `${ended} of ${of} runs, which took ${its.tokens} tokens and ${usd} USD`)
}

interface Round extends EvalTools {
  its: AiEvalDocument
  signal: AbortSignal
  isOver: () => boolean
}

interface Left {
  evalCase: FrozenCase
  repeat: number
  /** Null: it has not begun. */
  attempt: AiEvalAttemptDocument | null
}

/** The attempts that have not ended, those first that have begun: so no more are under way than at once. */
function leftOf(cases: FrozenCase[], attempts: AiEvalAttemptDocument[]): Left[] {
  const begun = new Map(attempts.map((one) => [`${one.case_id}:${one.repeat}`, one]))
  const all = cases.flatMap((evalCase) =>
    Array.from({ length: evalCase.repeats }, (_, index): Left => {
      const repeat = index + 1
      return { evalCase, repeat, attempt: begun.get(`${evalCase.id}:${repeat}`) ?? null }
    }),
  )
  return all
    .filter(({ attempt }) => !attempt?.end)
    .toSorted((one, other) => Number(other.attempt !== null) - Number(one.attempt !== null))
}

/** Takes an attempt as far as it comes in this round. Says whether it has ended. */
async function carryOut(round: Round, left: Left): Promise<boolean> {
  const attempt = left.attempt ?? (await begin(round, left))
  if (!attempt) return false
  if (attempt.end || attempt.run_id === null) return true
  const { its, signal } = round
  const run = await endOf(round, attempt.run_id)
  if (run?.open) return false
  if (run?.error?.code === 'undeployed') throw undeployed()
  const end = await endOfAttempt(round, left, run)
  if (signal.aborted) return false
  const usage = await settledUsage(its.tenant_id, { kind: 'run', id: attempt.run_id })
  await endAttempt(its, attempt, end, usage)
  return true
}

const undeployed = (): ApplicationFailure =>
  ApplicationFailure.nonRetryable('The deployment ended while its eval cases ran', 'undeployed')

/** Null: the workflow has too many open runs now. */
async function begin(
  { its, client }: Round,
  { evalCase, repeat }: Left,
): Promise<AiEvalAttemptDocument | null> {
  try {
    const { attempt, run } = await beginAttempt(its, evalCase, repeat)
    // Else the dispatcher starts it.
    if (run) await startRun(client, run).catch(() => {})
    return attempt
  } catch (error) {
    if (!(error instanceof Problem)) throw error
    if (error.code === 'too_many_runs') return null
    if (error.code === 'not_deployed' || error.code === 'not_found') throw undeployed()
    throw error
  }
}

const mostPauseMs = 2_000

/** The run when it has ended, or as it is when the round is over; null: it is gone. */
async function endOf({ its, signal, isOver }: Round, _id: string): Promise<RunSummary | null> {
  const { tenant_id } = its
  for (let pauseMs = 100; ; pauseMs = Math.min(mostPauseMs, pauseMs * 1.5)) {
    const run: RunSummary | null = await AiRun.findOne({ _id, tenant_id }, { input_json: 0 }).lean()
    if (!run?.open || isOver()) return run
    await sleep(pauseMs, undefined, { signal }).catch(() => {})
  }
}

async function endOfAttempt(round: Round, left: Left, run: RunSummary | null): Promise<AttemptEnd> {
  if (run?.status !== 'succeeded') return endWithout(run)
  const json = run.output ? await wholeOf(run, run.output, run.whole_output) : 'null'
  const output: unknown = JSON.parse(json)
  const end = endBy(left.evalCase.assertion, output)
  if (end) return end
  const byJudge = await judgedEnd(round, left, json, output)
  return run.whole_input || run.whole_output ? markedEnd(byJudge) : byJudge
}

/** Asks the judge until it has judged, or has no more answers to give. */
async function judgedEnd(
  { its, askJudge, signal }: Round,
  { evalCase, repeat }: Left,
  json: string,
  output: unknown,
): Promise<AttemptEnd> {
  const { assertion, input, id } = evalCase
  if (assertion.kind !== 'judge') throw new Error('the case has no judge')
  if (Buffer.byteLength(json) > evalBounds.judgedBytes)
    return failedToJudge('too_large', `The output has more than ${evalBounds.judgedBytes / 1024} KiB`)
  const { rubric, model } = assertion
  const answers: (string | null)[] = []
  let fault = failedToJudge('no_judgement', 'The judge gave no verdict after its reasons')
  for (;;) {
    const { outcome, reasons } = judged(answers)
    if (outcome === 'error') return fault
    if (outcome !== null) return { outcome, reasons, error: null }
    const asked = { key: `${id}/${repeat}/${answers.length}`, rubric, input, output }
    try {
      answers.push(await askJudge(() => judgeOf(its, model), asked, signal))
    } catch (error) {
      if (!(error instanceof NodeFault)) throw error
      fault = failedToJudge(error.code, error.message)
      answers.push(null)
    }
  }
}

const failedToJudge = (code: string, message: string): AttemptEnd => ({
  outcome: 'error',
  reasons: null,
  error: { code, message },
})
