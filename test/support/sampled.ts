import { isLong } from './long.ts'
import { Dice } from './random.ts'

/** The seed of all random choices of a run: script/test makes it from the commit's hash and prints it. */
export const seed = Number(process.env['KEELSON_TEST_SEED'] ?? 1)

/** All cases in the long form, else that many, drawn by the seed: many commits together cover all. */
export function sampled<T>(cases: readonly T[], count: number): T[] {
  if (isLong) return [...cases]
  const drawn = new Set(new Dice(seed).shuffled(cases.map((_, index) => index)).slice(0, count))
  return cases.filter((_, index) => drawn.has(index))
}

/** A number of a text, the same on every machine (FNV-1a). */
export const numberOf = (text: string): number =>
  Buffer.from(text).reduce((hash, byte) => Math.imul(hash ^ byte, 0x01000193), 0x811c9dc5)

/** Whether this run has the test with this name: the seed draws this share of them, the long form has all. */
export const isDrawn = (name: string, share = 1 / 2): boolean =>
  isLong || new Dice(seed ^ numberOf(name)).chance(share)
