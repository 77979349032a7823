import { isLong } from './long.ts'
import { Dice } from './random.ts'

/** What a run draws, it draws by this seed: script/test makes it from the commit's hash and prints it. */
export const seed = Number(process.env['KEELSON_TEST_SEED'] ?? 1)

/** In the long form all cases, else so many of them, drawn by the seed: over many commits all have been run. */
export function sampled<T>(cases: readonly T[], count: number): T[] {
  if (isLong) return [...cases]
  const drawn = new Set(new Dice(seed).shuffled(cases.map((_, index) => index)).slice(0, count))
  return cases.filter((_, index) => drawn.has(index))
}
