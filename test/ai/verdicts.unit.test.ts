import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import {
  type Attempts,
  type CaseVerdict,
  caseVerdict,
  compare,
  type Outcome,
  suiteVerdict,
} from '../../lib/ai/verdicts.ts'
import { seed } from '../support/sampled.ts'

const outcome = fc.constantFrom<Outcome>('pass', 'fail', 'error')

/** A case with what is known of its attempts. */
const attempted = fc.integer({ min: 1, max: 20 }).chain((repeats) =>
  fc.record({
    repeats: fc.constant(repeats),
    min_pass: fc.integer({ min: 1, max: repeats }),
    outcomes: fc.array(outcome, { maxLength: repeats }),
  }),
)

describe('the verdict on a case', () => {
  test('is the one that holds whatever the unknown attempts would have been', () => {
    fc.assert(
      fc.property(attempted, ({ outcomes, ...passing }) => {
        const passes = outcomes.filter((one) => one === 'pass').length
        const unknown = passing.repeats - outcomes.filter((one) => one !== 'error').length
        const possible = Array.from({ length: unknown + 1 }, (_, more) => passes + more >= passing.min_pass)
        const both: CaseVerdict = possible.every(Boolean) ? 'passed' : 'error'
        expect(caseVerdict(passing, outcomes)).toBe(possible.some(Boolean) ? both : 'failed')
      }),
      { seed, numRuns: 1_000 },
    )
  })

  test('is never failed by errors', () => {
    fc.assert(
      fc.property(attempted, ({ outcomes, ...passing }) => {
        const fine = outcomes.map((one): Outcome => (one === 'fail' ? 'error' : one))
        expect(caseVerdict(passing, fine)).not.toBe('failed')
      }),
      { seed },
    )
  })

  test.each<[number, number, Outcome[], CaseVerdict]>([
    [1, 1, ['pass'], 'passed'],
    [1, 1, ['fail'], 'failed'],
    [1, 1, ['error'], 'error'],
    [3, 2, ['pass', 'error', 'pass'], 'passed'],
    [3, 2, ['fail', 'error', 'fail'], 'failed'],
    [3, 2, ['pass', 'error', 'fail'], 'error'],
    [3, 2, ['pass', 'pass'], 'passed'],
    [3, 2, ['pass'], 'error'],
  ])('of %i attempts of which %i must pass, after %j, is %s', (repeats, min_pass, outcomes, verdict) => {
    expect(caseVerdict({ repeats, min_pass }, outcomes)).toBe(verdict)
  })
})

describe('the verdict on a suite', () => {
  test.each<[string, CaseVerdict[], string]>([
    ['passed if all cases have', ['passed', 'passed'], 'passed'],
    ['failed if one has', ['passed', 'failed', 'error'], 'failed'],
    ['inconclusive if one has an error', ['passed', 'error'], 'inconclusive'],
    ['inconclusive if all have an error', ['error'], 'inconclusive'],
    ['inconclusive if there are none', [], 'inconclusive'],
  ])('is %s', (_, verdicts, verdict) => {
    expect(suiteVerdict(verdicts)).toMatchObject({ verdict })
  })

  test('has the interval of those that were decided', () => {
    const verdicts: CaseVerdict[] = [...Array.from({ length: 20 }, () => 'failed' as const), 'error']
    const { pass_rate, ...counts } = suiteVerdict(verdicts)
    expect(counts).toEqual({ verdict: 'failed', passed: 0, failed: 20, errors: 1 })
    expect(pass_rate.low).toBe(0)
    expect(pass_rate.high).toBeCloseTo(0.1611, 4)
    expect(suiteVerdict(['error']).pass_rate).toEqual({ low: 0, high: 1 })
  })
})

const suite = fc
  .dictionary(fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f'), fc.array(outcome, { maxLength: 3 }))
  .map((attempts): Attempts => new Map(Object.entries(attempts)))

/** The first suite passes some cases that the second does not, and so on. */
function pairs(better: number, worse: number): [Attempts, Attempts] {
  const [passed, failed]: [Outcome[], Outcome[]] = [['pass'], ['fail']]
  const names = Array.from({ length: better + worse }, (_, at) => `case ${at}`)
  const own = names.map((name, at): [string, Outcome[]] => [name, at < better ? passed : failed])
  const other = names.map((name, at): [string, Outcome[]] => [name, at < better ? failed : passed])
  return [new Map(own), new Map(other)]
}

describe('the comparison of two suites', () => {
  test('says of the one what it says of the other, turned round', () => {
    fc.assert(
      fc.property(suite, suite, (one, other) => {
        const [there, back] = [compare(one, other), compare(other, one)]
        const turned = { better: 'worse', worse: 'better', undecided: 'undecided' } as const
        expect(back).toEqual({
          better: there.worse,
          worse: there.better,
          same: there.same,
          unknown: there.unknown,
          p_value: there.p_value,
          verdict: turned[there.verdict],
        })
        const { better, worse, same, unknown } = there
        expect(better + worse + same + unknown).toBe(new Set([...one.keys(), ...other.keys()]).size)
      }),
      { seed, numRuns: 500 },
    )
  })

  test('leaves out cases of one suite alone, with errors, or with another number of attempts', () => {
    const own: Attempts = new Map(Object.entries<Outcome[]>({ a: ['pass'], b: ['pass'], c: ['pass'], d: [] }))
    const other: Attempts = new Map(Object.entries<Outcome[]>({ b: ['error'], c: ['fail', 'fail'], d: [] }))
    expect(compare(own, other)).toMatchObject({
      better: 0,
      worse: 0,
      same: 0,
      unknown: 4,
      verdict: 'undecided',
    })
  })

  test('counts attempts, where a verdict on the case would hide them', () => {
    const [often, seldom]: [Outcome[], Outcome[]] = [
      ['pass', 'pass', 'pass'],
      ['pass', 'fail', 'pass'],
    ]
    expect(compare(new Map([['a', often]]), new Map([['a', seldom]]))).toMatchObject({ better: 1 })
  })

  test.each<[number, number, number, string]>([
    [0, 0, 1, 'undecided'],
    [5, 0, 0.0625, 'undecided'],
    [6, 0, 0.03125, 'better'],
    [0, 6, 0.03125, 'worse'],
    [9, 1, 0.021484375, 'better'],
    [8, 2, 0.109375, 'undecided'],
    [50, 50, 1, 'undecided'],
    [1_000, 1_000, 1, 'undecided'],
  ])('with %i better and %i worse has the chance %d, and is %s', (better, worse, p_value, verdict) => {
    const found = compare(...pairs(better, worse))
    expect(found).toMatchObject({ better, worse, verdict })
    expect(found.p_value).toBeCloseTo(p_value, 12)
  })

  test('of suites that are equally good takes one for the better in 5 % at most', () => {
    for (const cases of [1, 6, 10, 17, 40, 200]) {
      let [chance, mistaken] = [0.5 ** cases, 0]
      for (let better = 0; better <= cases; better++) {
        if (compare(...pairs(better, cases - better)).verdict !== 'undecided') mistaken += chance
        chance *= (cases - better) / (better + 1)
      }
      expect(mistaken).toBeLessThan(0.05)
    }
  })
})
