import { type Interval, wilson } from './wilson.ts'

// What follows from the attempts of eval cases: a verdict on each case, one on the suite, and a comparison of two suites.

/** Of one attempt. `error`: nothing is known, as a judge malfunctioned or the platform could not carry out the run. */
export type Outcome = 'pass' | 'fail' | 'error'

/** How often a case is run, and how many of these runs must pass. */
export interface Passing {
  repeats: number
  min_pass: number
}

/** `error`: too little is known to say either. */
export type CaseVerdict = 'passed' | 'failed' | 'error'

/** Attempts that are missing are unknown, like errors: the verdict is the one that holds whatever they would have been. */
export function caseVerdict({ repeats, min_pass }: Passing, outcomes: readonly Outcome[]): CaseVerdict {
  const passes = countOf(outcomes, 'pass')
  if (passes >= min_pass) return 'passed'
  return repeats - countOf(outcomes, 'fail') < min_pass ? 'failed' : 'error'
}

export interface SuiteVerdict {
  /** `passed`: every case has. `inconclusive`: none has failed, but some have an error, or there are none. */
  verdict: 'passed' | 'failed' | 'inconclusive'
  passed: number
  failed: number
  errors: number
  /** What share of such cases passes, as far as these tell: those with a verdict. */
  pass_rate: Interval
}

export function suiteVerdict(verdicts: readonly CaseVerdict[]): SuiteVerdict {
  const [passed, failed, errors] = [
    countOf(verdicts, 'passed'),
    countOf(verdicts, 'failed'),
    countOf(verdicts, 'error'),
  ]
  const isWhole = passed > 0 && errors === 0
  return {
    verdict: failed > 0 ? 'failed' : isWhole ? 'passed' : 'inconclusive',
    passed,
    failed,
    errors,
    pass_rate: wilson(passed, passed + failed),
  }
}

/** The attempts at each case, by its id. */
export type Attempts = ReadonlyMap<string, readonly Outcome[]>

export interface Comparison {
  /** Cases of which more attempts passed than of the other suite's, and so on. */
  better: number
  worse: number
  same: number
  /** Cases that are in one suite only, have an error, or were not attempted equally often. */
  unknown: number
  /** The chance of such a difference, or a larger one, if both were equally good (two-sided sign test). */
  p_value: number
  /** `undecided`: this chance is 5 % or more. */
  verdict: 'better' | 'worse' | 'undecided'
}

/** Compares a suite's attempts with another's, case by case. */
export function compare(own: Attempts, other: Attempts): Comparison {
  const counts = { better: 0, worse: 0, same: 0, unknown: 0 }
  for (const id of new Set([...own.keys(), ...other.keys()]))
    counts[compareCase(own.get(id), other.get(id))]++
  const { better, worse } = counts
  const p_value = signTest(better, worse)
  if (p_value >= 0.05) return { ...counts, p_value, verdict: 'undecided' }
  return { ...counts, p_value, verdict: better > worse ? 'better' : 'worse' }
}

/** Equally many attempts on both sides make a fair toss: one of one passes more often than twenty of twenty. */
function compareCase(
  own: readonly Outcome[] = [],
  other: readonly Outcome[] = [],
): 'better' | 'worse' | 'same' | 'unknown' {
  const isKnown = own.length === other.length && own.length > 0 && ![...own, ...other].includes('error')
  if (!isKnown) return 'unknown'
  const difference = countOf(own, 'pass') - countOf(other, 'pass')
  if (difference === 0) return 'same'
  return difference > 0 ? 'better' : 'worse'
}

/** Exact. In logarithms: the chance of one of 2,000 tosses is below what a number can hold. */
function signTest(better: number, worse: number): number {
  const tosses = better + worse
  let [ln, tail] = [tosses * Math.log(0.5), 0]
  for (let heads = 0; heads <= Math.min(better, worse); heads++) {
    tail += Math.exp(ln)
    ln += Math.log((tosses - heads) / (heads + 1))
  }
  return Math.min(1, 2 * tail)
}

const countOf = <T>(list: readonly T[], one: T): number => list.filter((each) => each === one).length
