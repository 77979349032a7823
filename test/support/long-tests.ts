import { test } from '@jest/globals'
import { isLong } from './long.ts'

/** For tests that take too long for CI: they run in the long form only. */
export const testLong = isLong ? test : test.skip
