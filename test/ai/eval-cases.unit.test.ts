import { describe, expect, test } from '@jest/globals'
import { createHash } from 'node:crypto'
import { caseBytes, caseSetHash, type EvalCase } from '../../lib/ai/eval-cases.ts'

const polite: EvalCase = {
  name: 'polite',
  input: { b: 2, a: 1 },
  assertion: { kind: 'contains', text: 'please' },
  repeats: 3,
  min_pass: 2,
}
const exact: EvalCase = { ...polite, name: 'exact', assertion: { kind: 'equals', value: { y: 1, x: [] } } }

describe('the hash of all cases of a workflow', () => {
  test('is that of their canonical JSON, by name', () => {
    const [first, second] = [
      '{"assertion":{"kind":"equals","value":{"x":[],"y":1}},"input":{"a":1,"b":2},"min_pass":2,"name":"exact","repeats":3}',
      '{"assertion":{"kind":"contains","text":"please"},"input":{"a":1,"b":2},"min_pass":2,"name":"polite","repeats":3}',
    ]
    const hash = createHash('sha256').update(`[${first},${second}]`).digest('hex')
    expect(caseSetHash([polite, exact])).toBe(hash)
    expect(caseSetHash([exact, { ...polite, input: { a: 1, b: 2 } }])).toBe(hash)
    expect([caseBytes(exact), caseBytes(polite)]).toEqual([first?.length, second?.length])
  })

  test('leaves out what does not decide a verdict', () => {
    expect(caseSetHash([{ ...polite, id: '1' } as EvalCase])).toBe(caseSetHash([polite]))
  })

  test.each<[string, Partial<EvalCase>]>([
    ['its name', { name: 'kind' }],
    ['its input', { input: { a: 1, b: 3 } }],
    ['its assertion', { assertion: { kind: 'contains', text: 'pleas' } }],
    ['its repeats', { repeats: 4 }],
    ['its min_pass', { min_pass: 3 }],
  ])('is another one after a change of %s', (_, change) => {
    expect(caseSetHash([{ ...polite, ...change }])).not.toBe(caseSetHash([polite]))
  })

  test('is null if there are none', () => {
    expect(caseSetHash([])).toBeNull()
  })
})
