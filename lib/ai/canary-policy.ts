import { wilson } from './wilson.ts'

// Whether a canary's runs go back to the primary. A pure function of what was counted: its caller counts from the canary's last
// change, within the last 10 minutes.

/** The runs of a deployment that ended, without the cancelled ones. */
export interface CanaryWindow {
  runs: number
  /** Those that failed. */
  errors: number
  /** The 95th percentile of their durations. Null: there are none. */
  p95_ms: number | null
  /** Of all of them. Null: the price of one is unknown. */
  cost_nano_usd: number | null
}

/** How much more than the primary the canary may take, as a factor. Null: this is not looked at. */
export interface CanaryBounds {
  p95_ratio: number | null
  /** Of the cost per run. */
  cost_ratio: number | null
}

export const canaryReasons = [
  'failures_in_a_row',
  'errors',
  'p95',
  'cost',
  'too_few_runs',
  'within_bounds',
] as const

export interface CanaryDecision {
  /** `back`: new runs go to the primary alone. `hold`: the canary keeps its weight. */
  verdict: 'hold' | 'back'
  reason: (typeof canaryReasons)[number]
  /** The reason with its figures, for people. */
  message: string
}

/** The runs that ended within this time count. */
export const windowMs = 600_000
/** With fewer runs than these, an error rate says little. */
export const enoughRuns = 20
const failuresInARow = 5
/** How far the canary's error rate may lie above the primary's. */
const tolerated = 0.05

type Finding = Omit<CanaryDecision, 'verdict'>

/**
 * `last`: how the canary's last runs ended, the newest first, without the cancelled ones. Failures in a row count at once;
 * everything else needs enough runs.
 */
export function decide(
  canary: CanaryWindow,
  primary: CanaryWindow,
  last: readonly ('succeeded' | 'failed')[],
  bounds: CanaryBounds,
): CanaryDecision {
  const isKnown = canary.runs >= enoughRuns
  const found =
    rowOf(last) ??
    (isKnown
      ? (errorsOf(canary, primary) ?? p95Of(canary, primary, bounds) ?? costOf(canary, primary, bounds))
      : null)
  if (found) return { verdict: 'back', ...found }
  return { verdict: 'hold', ...(fewOf('canary', canary) ?? fewOf('primary', primary) ?? within) }
}

const within: Finding = {
  reason: 'within_bounds',
  message: 'The canary does no worse than the primary, as far as its runs tell',
}

function fewOf(name: string, { runs }: CanaryWindow): Finding | null {
  if (runs >= enoughRuns) return null
  return {
    reason: 'too_few_runs',
    message: `The ${name} has had ${runs} runs in ${windowMs / 60_000} minutes, and needs ${enoughRuns}`,
  }
}

function rowOf(last: readonly ('succeeded' | 'failed')[]): Finding | null {
  const newest = last.slice(0, failuresInARow)
  if (newest.length < failuresInARow || newest.includes('succeeded')) return null
  return { reason: 'failures_in_a_row', message: `${failuresInARow} runs of the canary failed in a row` }
}

/** Few runs of the primary tell little of its error rate: as long as they are few, the highest that fits them counts. */
function errorsOf(canary: CanaryWindow, primary: CanaryWindow): Finding | null {
  const { low } = wilson(canary.errors, canary.runs)
  const rate =
    primary.runs < enoughRuns ? wilson(primary.errors, primary.runs).high : primary.errors / primary.runs
  if (low <= rate + tolerated) return null
  const seen = `${primary.errors} of ${primary.runs} runs of the primary failed, and ${canary.errors} of ${canary.runs} of the canary`
  return { reason: 'errors', message: `${seen}: its error rate is probably above ${percent(low)}` }
}

function p95Of(canary: CanaryWindow, primary: CanaryWindow, { p95_ratio }: CanaryBounds): Finding | null {
  if (p95_ratio === null || primary.runs < enoughRuns) return null
  if (canary.p95_ms === null || primary.p95_ms === null) return null
  if (canary.p95_ms <= primary.p95_ms * p95_ratio) return null
  const seen = `The canary’s p95 is ${canary.p95_ms} ms, and the primary’s ${primary.p95_ms} ms`
  return { reason: 'p95', message: `${seen}: more than ${p95_ratio} times as long` }
}

function costOf(canary: CanaryWindow, primary: CanaryWindow, { cost_ratio }: CanaryBounds): Finding | null {
  if (cost_ratio === null || primary.runs < enoughRuns) return null
  if (canary.cost_nano_usd === null || primary.cost_nano_usd === null) return null
  const [its, usual] = [canary.cost_nano_usd / canary.runs, primary.cost_nano_usd / primary.runs]
  if (its <= usual * cost_ratio) return null
  const seen = `A run of the canary costs ${usd(its)}, and one of the primary ${usd(usual)}`
  return { reason: 'cost', message: `${seen}: more than ${cost_ratio} times as much` }
}

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`
const usd = (nano: number): string => `${(nano / 1e9).toFixed(6)} USD`
