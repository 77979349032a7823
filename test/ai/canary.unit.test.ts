import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { bucketOf, takes } from '../../lib/ai/canary.ts'
import { seed } from '../support/sampled.ts'

const workflow = '019a0000-0000-7000-8000-000000000001'
const keys = Array.from({ length: 10_000 }, (_, at) => `customer-${at}`)
/** Percent with two decimals. */
const weight = fc.integer({ min: 0, max: 10_000 }).map((hundredths) => hundredths / 100)
const taken = (id: string, percent: number): Set<string> =>
  new Set(keys.filter((key) => takes(percent, bucketOf(id, key))))

describe('the canary of a workflow', () => {
  test('takes the same keys in every release', () => {
    // printf '%s\n%s' WORKFLOW KEY | sha256sum
    expect(bucketOf(workflow, 'customer-1')).toBe(0xf27f99ce % 10_000)
    expect(bucketOf(workflow, 'Zoë')).toBe(0x508f2a2c % 10_000)
  })

  test('has one bucket for a key, each time that the key comes', () => {
    fc.assert(
      fc.property(fc.uuid(), fc.string({ unit: 'binary' }), (id, key) => {
        const bucket = bucketOf(id, key)
        expect(Number.isInteger(bucket) && bucket >= 0 && bucket < 10_000).toBe(true)
        expect(bucketOf(id, key)).toBe(bucket)
      }),
      { seed },
    )
  })

  test('keeps the keys that it has when its weight grows from 10 to 30', () => {
    const [before, after] = [taken(workflow, 10), taken(workflow, 30)]
    expect([...before].filter((key) => !after.has(key))).toEqual([])
    expect(after.size).toBeGreaterThan(before.size)
  })

  test('takes more keys with a higher weight, and loses none', () => {
    fc.assert(
      fc.property(weight, weight, fc.nat({ max: 9_999 }), (one, other, bucket) => {
        const [less, more] = [Math.min(one, other), Math.max(one, other)]
        if (takes(less, bucket)) expect(takes(more, bucket)).toBe(true)
      }),
      { seed },
    )
  })

  test.each([1, 2, 3, 4, 5])('takes 10 %% of 10,000 keys, within 1 %% (workflow %i)', (at) => {
    // These keys, not random ones: of 1,000 random samples, one would differ by more.
    const share = taken(`019a0000-0000-7000-8000-00000000000${at}`, 10).size / keys.length
    expect(Math.abs(share - 0.1)).toBeLessThanOrEqual(0.01)
  })

  test('takes exactly as many buckets as its weight says, to two decimals', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 10_000 }), (hundredths) => {
        const percent = hundredths / 100
        expect(takes(percent, hundredths - 1)).toBe(true)
        expect(takes(percent, hundredths)).toBe(false)
      }),
      { seed, examples: [[29], [57], [1], [10_000]] },
    )
    expect(takes(0, 0)).toBe(false)
  })

  test('of another workflow takes other keys', () => {
    const other = taken('019a0000-0000-7000-8000-000000000002', 10)
    const both = [...taken(workflow, 10)].filter((key) => other.has(key))
    // One key in a hundred: about 100.
    expect(both.length).toBeLessThan(200)
  })
})
