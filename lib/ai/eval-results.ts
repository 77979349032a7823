import { type Assertion, holds } from './assertions.ts'
import type { EvalCase } from './eval-cases.ts'
import {
  type Attempts,
  caseVerdict,
  type CaseVerdict,
  compare,
  type Comparison,
  type Outcome,
  suiteVerdict,
  type SuiteVerdict,
} from './verdicts.ts'

// What the attempts of a run of eval cases come to.

/** A case as it was when its run began. */
export interface FrozenCase extends EvalCase {
  id: string
}

interface Fault {
  code: string
  message: string
}

/** How one attempt at a case has ended. */
export interface AttemptEnd {
  outcome: Outcome
  /** The judge's; null: no judge gave a verdict. */
  reasons: string | null
  /** Why the run failed, or nothing is known. */
  error: Fault | null
}

export interface Attempt extends AttemptEnd {
  /** Null: the version refused the input. */
  run_id: string | null
}

export interface CaseResult {
  case_id: string
  name: string
  repeats: number
  min_pass: number
  verdict: CaseVerdict
  passes: number
  fails: number
  errors: number
  /** One for each repeat. */
  attempts: Attempt[]
}

export interface EvalResult extends SuiteVerdict {
  cases: CaseResult[]
}

/** Faults of the platform: they say nothing of the version. */
const ofPlatform = new Set(['internal', 'runner_lost'])

const withoutReasons = (outcome: Outcome, error: Fault | null = null): AttemptEnd => ({
  outcome,
  reasons: null,
  error,
})

/** How an attempt ends whose run did not succeed. */
export function endWithout(run: { status: string; error: Fault | null } | null): AttemptEnd {
  if (!run) return withoutReasons('error', { code: 'run_gone', message: 'The run was removed' })
  const { status, error } = run
  if (status === 'cancelled')
    return withoutReasons('error', { code: 'run_cancelled', message: 'The run was cancelled' })
  const { code, message } = error ?? { code: 'internal', message: `The run is ${status}` }
  return withoutReasons(ofPlatform.has(code) ? 'error' : 'fail', { code, message })
}

/** How an attempt ends by its run's output; null: a judge decides. */
export const endBy = (assertion: Assertion, output: unknown): AttemptEnd | null =>
  assertion.kind === 'judge' ? null : withoutReasons(holds(assertion, output) ? 'pass' : 'fail')

/** `attemptsOf`: those at a case, by its id. */
export function evalResult(
  cases: readonly FrozenCase[],
  attemptsOf: (case_id: string) => Attempt[],
): EvalResult {
  const results = cases.map(({ id, name, repeats, min_pass }): CaseResult => {
    const attempts = attemptsOf(id)
    const outcomes = attempts.map(({ outcome }) => outcome)
    const countOf = (one: Outcome): number => outcomes.filter((outcome) => outcome === one).length
    return {
      case_id: id,
      name,
      repeats,
      min_pass,
      verdict: caseVerdict({ repeats, min_pass }, outcomes),
      passes: countOf('pass'),
      fails: countOf('fail'),
      errors: countOf('error'),
      attempts,
    }
  })
  return { ...suiteVerdict(results.map(({ verdict }) => verdict)), cases: results }
}

/** By the names of the cases: one that was deleted and made again has another id. */
const outcomesOf = ({ cases }: EvalResult): Attempts =>
  new Map(cases.map(({ name, attempts }) => [name, attempts.map(({ outcome }) => outcome)]))

export const compareResults = (own: EvalResult, other: EvalResult): Comparison =>
  compare(outcomesOf(own), outcomesOf(other))
