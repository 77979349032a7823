import { test } from '@jest/globals'
import { isLong } from './long.ts'

/** Of the long form alone: what takes so long that CI leaves it out. */
export const testLong = isLong ? test : test.skip
