import { describe, expect, test } from '@jest/globals'
import { type CanaryBounds, type CanaryWindow, decide, enoughRuns } from '../../lib/ai/canary-policy.ts'
import { wilson } from '../../lib/ai/wilson.ts'
import { Dice } from '../support/random.ts'
import { seed } from '../support/sampled.ts'

type End = 'succeeded' | 'failed'

const unbounded: CanaryBounds = { p95_ratio: null, cost_ratio: null }
const window = (runs: number, errors: number, more: Partial<CanaryWindow> = {}): CanaryWindow => ({
  runs,
  errors,
  p95_ms: 1_000,
  cost_nano_usd: runs * 1_000,
  ...more,
})
const good = window(200, 2)
const failed = (count: number): End[] => Array.from({ length: count }, () => 'failed')

describe('the policy of canaries', () => {
  test('holds, and says why, while the canary has too few runs', () => {
    expect(decide(window(enoughRuns - 1, enoughRuns - 1), good, [], unbounded)).toEqual({
      verdict: 'hold',
      reason: 'too_few_runs',
      message: 'The canary has had 19 runs in 10 minutes, and needs 20',
    })
  })

  test('goes back after five failures in a row, however few the runs are', () => {
    const five = decide(window(5, 5), good, failed(5), unbounded)
    expect(five).toMatchObject({ verdict: 'back', reason: 'failures_in_a_row' })
    expect(decide(window(5, 5), good, [...failed(5), 'succeeded'], unbounded)).toEqual(five)
    for (const last of [failed(4), [...failed(4), 'succeeded' as const, ...failed(5)]])
      expect(decide(window(9, 8), good, last, unbounded)).toMatchObject({ verdict: 'hold' })
  })

  test('goes back when the canary’s rate of errors is surely 5 points above the primary’s', () => {
    // Of 20 runs, four failed: at least 8.07 %, within the primary's 4 % and 5 points. Five: at least 11.2 %.
    const primary = window(200, 8)
    expect(decide(window(20, 4), primary, [], unbounded)).toMatchObject({
      verdict: 'hold',
      reason: 'within_bounds',
    })
    expect(decide(window(20, 5), primary, [], unbounded)).toEqual({
      verdict: 'back',
      reason: 'errors',
      message:
        '8 of 200 runs of the primary failed, and 5 of 20 of the canary: its error rate is probably above 11.2 %',
    })
  })

  test('takes the highest rate that fits the primary while that has few runs', () => {
    expect(decide(window(20, 8), window(0, 0), [], unbounded)).toEqual({
      verdict: 'hold',
      reason: 'too_few_runs',
      message: 'The primary has had 0 runs in 10 minutes, and needs 20',
    })
    // None of 10: 27.8 % at most. 14 of 20: 48.1 % at least.
    expect(decide(window(20, 8), window(10, 0), [], unbounded)).toMatchObject({ reason: 'too_few_runs' })
    expect(decide(window(20, 14), window(10, 0), [], unbounded)).toMatchObject({ reason: 'errors' })
  })

  test.each<[string, Partial<CanaryWindow>, Partial<CanaryBounds>, string]>([
    ['takes longer than its bound', { p95_ms: 1_501 }, { p95_ratio: 1.5 }, 'p95'],
    ['takes as long as its bound', { p95_ms: 1_500 }, { p95_ratio: 1.5 }, 'within_bounds'],
    ['takes longer, without a bound', { p95_ms: 9_999 }, {}, 'within_bounds'],
    ['costs more than its bound', { cost_nano_usd: 40_001 }, { cost_ratio: 2 }, 'cost'],
    ['costs as much as its bound', { cost_nano_usd: 40_000 }, { cost_ratio: 2 }, 'within_bounds'],
    ['costs more, without a bound', { cost_nano_usd: 99_999 }, {}, 'within_bounds'],
    ['costs nobody knows what', { cost_nano_usd: null }, { cost_ratio: 2 }, 'within_bounds'],
  ])('of a canary that %s', (_, seen, bounds, reason) => {
    expect(decide(window(20, 0, seen), good, [], { ...unbounded, ...bounds })).toMatchObject({ reason })
  })

  test('compares neither time nor cost with a primary that has few runs', () => {
    const slow = window(20, 0, { p95_ms: 9_999, cost_nano_usd: 999_999 })
    const decision = decide(slow, window(19, 0), [], { p95_ratio: 1, cost_ratio: 1 })
    expect(decision).toMatchObject({ verdict: 'hold', reason: 'too_few_runs' })
  })
})

// A simulation: a canary with a tenth of the runs, one every 10 s, and a decision after each.

const [canaryShare, perWindow] = [10, 60]
const looks = 720 // two hours
const simulations = 100

/** The look at which the canary went back; null: it did not. */
function simulate(rates: { canary: number; primary: number }, dice: Dice): number | null {
  const its: End[] = []
  const primary: number[] = []
  const end = (rate: number): End => (dice.chance(rate) ? 'failed' : 'succeeded')
  for (let look = 1; look <= looks; look++) {
    const others = Array.from({ length: canaryShare - 1 }, () => end(rates.primary))
    primary.push(others.filter((one) => one === 'failed').length)
    its.unshift(end(rates.canary))
    const seen = Math.min(look, perWindow)
    const errors = its.slice(0, seen).filter((one) => one === 'failed').length
    const usual = primary.slice(-seen).reduce((sum, one) => sum + one, 0)
    const rest = window(seen * (canaryShare - 1), usual)
    if (decide(window(seen, errors), rest, its, unbounded).verdict === 'back') return look
  }
  return null
}

/** ln(n!) for n from 0. */
const factorials = Array.from({ length: 601 }, () => 0)
for (let n = 1; n < factorials.length; n++) factorials[n] = (factorials[n - 1] ?? 0) + Math.log(n)
const lnFactorial = (n: number): number => factorials[n] ?? Number.NaN

/** The chance of exactly `count` of `total`. */
const chanceOf = (count: number, total: number, rate: number): number =>
  Math.exp(
    lnFactorial(total) -
      lnFactorial(count) -
      lnFactorial(total - count) +
      count * Math.log(rate) +
      (total - count) * Math.log(1 - rate),
  )
const chanceOfMore = (count: number, total: number, rate: number): number => {
  let sum = 0
  for (let more = total; more > count; more--) sum += chanceOf(more, total, rate)
  return sum
}

/** The chance that one look at full windows, or those of a younger canary, finds the canary's errors too many. */
function chanceAt(runs: number, rates: { canary: number; primary: number }): number {
  const others = runs * (canaryShare - 1)
  let [sum, errors] = [0, 0]
  for (let usual = 0; usual <= others; usual++) {
    while (errors <= runs && wilson(errors, runs).low <= usual / others + 0.05) errors++
    sum += chanceOf(usual, others, rates.primary) * chanceOfMore(errors - 1, runs, rates.canary)
  }
  return sum
}

describe('a simulated canary', () => {
  test('with 20 % errors goes back by itself, in each of 100 simulations', () => {
    const rates = { canary: 0.2, primary: 0.02 }
    const backs = Array.from({ length: simulations }, (_, at) => simulate(rates, new Dice(seed * 1_000 + at)))
    const after = backs.filter((look) => look !== null).toSorted((a, b) => a - b)
    process.stdout.write(
      `a canary with 20 % errors goes back in ${after.length} of ${simulations}: after ${after[50]} runs in the middle, ${after.at(-1)} at most\n`,
    )
    // Windows without a common run are independent: the chance that none of 12 looks finds it is 1.2e-12.
    expect((1 - chanceAt(perWindow, rates)) ** (looks / perWindow)).toBeLessThan(1e-11)
    expect(after).toHaveLength(simulations)
  })

  test.each([0.01, 0.02, 0.05])('that is as good as its primary stays (%d errors)', (rate) => {
    const rates = { canary: rate, primary: rate }
    const backs = Array.from({ length: simulations }, (_, at) => simulate(rates, new Dice(seed * 1_000 + at)))
    const alarms = backs.filter((look) => look !== null).length
    // A decision after each run is many looks, so 95 % of one look guarantee nothing. What the method does guarantee: the chance of
    // a false alarm is at most the sum of the chances of all looks. More alarms than `atMost` then come at most once in a million.
    const perLook = Array.from({ length: looks - enoughRuns + 1 }, (_, at) =>
      Math.min(enoughRuns + at, perWindow),
    )
    const chances = new Map([...new Set(perLook)].map((runs) => [runs, chanceAt(runs, rates)]))
    const each = perLook.reduce((sum, runs) => sum + (chances.get(runs) ?? 1), 0) + looks * rate ** 5
    let atMost = 0
    while (chanceOfMore(atMost, simulations, Math.min(each, 0.999)) > 1e-6) atMost++
    process.stdout.write(
      `a canary as good as its primary (${rate * 100} % errors): ${alarms} false alarms in ${simulations}, each with a chance of at most ${(each * 100).toFixed(2)} %; asserted: at most ${atMost}\n`,
    )
    expect(alarms).toBeLessThanOrEqual(atMost)
  })
})
