import { expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { wilson } from '../../lib/ai/wilson.ts'
import { seed } from '../support/sampled.ts'

test.each([
  [81, 263, 0.2553, 0.3662],
  [15, 148, 0.0624, 0.1605],
  [0, 20, 0, 0.1611],
  [1, 29, 0.0061, 0.1718],
])('The interval of %i of %i is that of the literature', (count, total, low, high) => {
  // Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
  const found = wilson(count, total)
  expect(found.low).toBeCloseTo(low, 4)
  expect(found.high).toBeCloseTo(high, 4)
})

test('An interval lies within 0 and 1, has the share in it, and mirrors that of the rest', () => {
  fc.assert(
    fc.property(fc.nat({ max: 1_000_000 }), fc.nat({ max: 1_000_000 }), (count, rest) => {
      const total = count + rest
      const { low, high } = wilson(count, total)
      const share = total === 0 ? 0.5 : count / total
      expect(0 <= low && low <= share && share <= high && high <= 1).toBe(true)
      expect(wilson(rest, total).high).toBeCloseTo(1 - low, 12)
    }),
    {
      seed,
      examples: [
        [0, 0],
        [0, 1],
        [1, 0],
      ],
    },
  )
})
