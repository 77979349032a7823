import { describe, expect, test } from '@jest/globals'
import { canonicalJson, hashOf, versionOf } from '../../lib/ai/canonical.ts'

describe('canonical JSON', () => {
  test('is that of RFC 8785, section 3.2', () => {
    const value = {
      numbers: [JSON.parse('333333333.33333329'), 1e30, 4.5, 2e-3, 0.000000000000000000000000001, -0],
      string: '\u20ac$\u000F\u000aA\'\u0042\u0022\u005c\\"/',
      literals: [null, true, false],
    }
    expect(canonicalJson(value)).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27,0],' +
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    )
    // Names are in the order of their UTF-16 units.
    const names = { '\u20ac': 1, '\r': 2, '\ufb33': 3, '1': 4, '\ud83d\ude00': 5, '\u0080': 6, '\u00f6': 7 }
    expect(Object.values(JSON.parse(canonicalJson(names)) as object)).toHaveLength(7)
    expect([...canonicalJson(names).matchAll(/:(\d)/g)].map(([, digit]) => digit).join('')).toBe('2467153')
  })

  test.each([[undefined], [Number.NaN], ['\ud800'], [{ '\udc00': 1 }], [() => 1]])('%p has none', (value) => {
    expect(() => canonicalJson(value)).toThrow(expect.objectContaining({ name: 'NotCanonical' }))
  })

  test('gives a spec one hash, in whatever order its fields are', () => {
    const hash = hashOf({ b: [1, { d: 1, c: 2 }], a: 'x' })
    expect(hash).toBe(hashOf({ a: 'x', b: [1.0, { c: 2, d: 1 }] }))
    expect(hash).toMatch(/^[0-9a-f]{64}$/)
    expect(hash).not.toBe(hashOf({ a: 'x', b: [{ c: 2, d: 1 }, 1] }))
  })
})

test('Publishing an unchanged draft is the version that is there', () => {
  const draft = { spec: 1, nodes: { a: { kind: 'template', value: 1 } } }
  const first = versionOf(draft, null)
  expect(first).toMatchObject({ number: 1, isNew: true })
  expect(versionOf(JSON.parse(canonicalJson(draft)), first)).toEqual({ ...first, isNew: false })
  const changed = versionOf({ ...draft, output: 1 }, first)
  expect(changed).toMatchObject({ number: 2, isNew: true })
  // Changing it back is a new version: numbers tell the order of publishing.
  expect(versionOf(draft, changed)).toEqual({ number: 3, spec_sha256: first.spec_sha256, isNew: true })
})
