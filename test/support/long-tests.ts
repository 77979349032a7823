import { describe, test } from '@jest/globals'
import { isLong } from './long.ts'

// Of the long form alone: what takes so long that CI runs a short form of the same proof.

export const testLong = isLong ? test : test.skip
export const describeLong = isLong ? describe : describe.skip
