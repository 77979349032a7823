import { test } from '@jest/globals'
import { isLong } from './long.ts'
import { Dice } from './random.ts'
import { seed } from './sampled.ts'

/** A number of a text, the same on every machine (FNV-1a). */
const numberOf = (text: string): number =>
  Buffer.from(text).reduce((hash, byte) => Math.imul(hash ^ byte, 0x01000193), 0x811c9dc5)

/**
 * A slow test of a part that other tests touch too. The seed draws half of these for a run, so any two commits or so
 * run it once; the long form runs all.
 */
export const testDrawn: (...given: Parameters<typeof test>) => void = (name, ...rest) => {
  const drawn = isLong || new Dice(seed ^ numberOf(String(name))).chance(1 / 2)
  ;(drawn ? test : test.skip)(name, ...rest)
}
