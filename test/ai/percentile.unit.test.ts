import { expect, test } from '@jest/globals'
import { percentile } from '../../lib/percentile.ts'

test('a percentile is a value of the list, by the nearest rank', () => {
  const hundred = Array.from({ length: 100 }, (_, at) => 100 - at)
  expect([0.5, 0.95, 1].map((share) => percentile(hundred, share))).toEqual([50, 95, 100])
  expect(percentile([3, 1, 2], 0.5)).toBe(2)
  expect(percentile([7], 0.95)).toBe(7)
  expect(percentile([], 0.95)).toBeNull()
})
