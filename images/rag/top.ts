/** A slot of the mirror, and how good its chunk is. */
export interface Scored {
  slot: number
  score: number
}

/**
 * The slots with the least distances, at most `count` and those that are as near as the last of them. `distances` are whole
 * numbers up to `most`; larger ones are left out. Counts how many there are of each distance, instead of sorting.
 */
export function nearest(distances: Uint16Array, length: number, most: number, count: number): number[] {
  const counts = new Uint32Array(most + 1)
  for (let slot = 0; slot < length; slot++) {
    const distance = distances[slot] as number
    if (distance <= most) counts[distance] = (counts[distance] as number) + 1
  }
  let last = 0
  for (let sum = counts[0] as number; sum < count && last < most; ) sum += counts[++last] as number
  const found: number[] = []
  for (let slot = 0; slot < length; slot++) if ((distances[slot] as number) <= last) found.push(slot)
  return found
}

/** The best `count`, best first; of equal ones the first. */
export const best = (scored: Scored[], count: number): Scored[] =>
  scored.toSorted((a, b) => b.score - a.score || a.slot - b.slot).slice(0, count)

/** The same of the scores of all slots, without those that have 0. */
export function bestAbove0(scores: Float32Array, count: number): Scored[] {
  let found: Scored[] = []
  let least = 0
  for (let slot = 0; slot < scores.length; slot++) {
    const score = scores[slot] as number
    if (score <= least) continue
    found.push({ slot, score })
    // Sorting now and then keeps the list short, and raises the bar for those that follow.
    if (found.length < 2 * count) continue
    found = best(found, count)
    least = (found.at(-1) as Scored).score
  }
  return best(found, count)
}
