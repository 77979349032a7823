import { test } from '@jest/globals'
import { isDrawn } from './sampled.ts'

/**
 * A slow test of a part that other tests touch too. The seed draws half of these for a run, so any two commits or so
 * run it once; the long form runs all.
 */
export const testDrawn: (...given: Parameters<typeof test>) => void = (name, ...rest) => {
  ;(isDrawn(String(name)) ? test : test.skip)(name, ...rest)
}
