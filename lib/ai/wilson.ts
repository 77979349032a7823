/** Of a normal distribution, 95 % lies within so many standard deviations. */
const z = 1.959_964

export interface Interval {
  low: number
  high: number
}

/**
 * The Wilson score interval, at 95 %, of a share that was seen as `count` of `total`. It holds for small numbers and for shares
 * near 0 and 1, too: Wilson, J. Am. Stat. Assoc. 22 (1927). Of nothing it is 0 to 1.
 */
export function wilson(count: number, total: number): Interval {
  if (total === 0) return { low: 0, high: 1 }
  const share = count / total
  const middle = share + z ** 2 / (2 * total)
  const reach = z * Math.sqrt((share * (1 - share)) / total + z ** 2 / (4 * total ** 2))
  const scale = 1 + z ** 2 / total
  // Both ends are exact here, where floating point may miss them.
  const low = count === 0 ? 0 : (middle - reach) / scale
  const high = count === total ? 1 : (middle + reach) / scale
  return { low, high }
}
