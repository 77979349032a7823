import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { judged, judgementOf, judgementSchema } from '../../lib/ai/judging.ts'
import { seed } from '../support/sampled.ts'

const pass = '{"reasons": "It is polite.", "verdict": "pass"}'
const fail = '{"reasons": "It is rude.", "verdict": "fail"}'

describe('a judge', () => {
  test('is asked for its reasons before its verdict', () => {
    expect(judgementSchema()).toMatchObject({ required: ['reasons', 'verdict'], additionalProperties: false })
    expect(Object.keys(judgementSchema()['properties'] as object)).toEqual(['reasons', 'verdict'])
  })

  test.each([
    ['no JSON', 'It is polite: pass'],
    ['JSON that was cut off', pass.slice(0, -2)],
    ['another verdict', '{"reasons": "It is polite.", "verdict": "good"}'],
    ['a verdict alone', '{"verdict": "fail"}'],
    ['a verdict without reasons', '{"reasons": " ", "verdict": "fail"}'],
    ['the verdict before the reasons', '{"verdict": "fail", "reasons": "It is rude."}'],
    ['a field more', '{"reasons": "It is rude.", "verdict": "fail", "sure": 0.2}'],
    ['a list', `[${fail}]`],
    ['null', 'null'],
    ['nothing', ''],
  ])('malfunctions if it answers with %s', (_, answer) => {
    expect(judgementOf(answer)).toBeNull()
    expect(judged([answer])).toEqual({ outcome: null, reasons: null })
    expect(judged([answer, answer])).toEqual({ outcome: 'error', reasons: null })
  })

  test('is asked a second time, and no third, if its first answer is of no use', () => {
    expect(judged([])).toEqual({ outcome: null, reasons: null })
    expect(judged([null])).toEqual({ outcome: null, reasons: null })
    expect(judged([null, fail])).toEqual({ outcome: 'fail', reasons: 'It is rude.' })
    expect(judged(['', pass])).toEqual({ outcome: 'pass', reasons: 'It is polite.' })
    expect(judged([null, null])).toEqual({ outcome: 'error', reasons: null })
    expect(judged([null, null, pass])).toEqual({ outcome: 'error', reasons: null })
  })

  test('is not asked again because of its verdict', () => {
    expect(judged([fail])).toEqual({ outcome: 'fail', reasons: 'It is rude.' })
    expect(judged([fail, pass])).toEqual({ outcome: 'fail', reasons: 'It is rude.' })
  })

  test('that answers anything else finds no output wrong', () => {
    const cut = fc.nat({ max: fail.length - 1 }).map((at) => fail.slice(0, at))
    const answers = fc.oneof(fc.string(), fc.json(), cut, fc.constant(null))
    fc.assert(
      fc.property(answers, answers, (first, second) => {
        expect(judged([first, second])).toEqual({ outcome: 'error', reasons: null })
      }),
      { seed, numRuns: 1_000 },
    )
  })
})
