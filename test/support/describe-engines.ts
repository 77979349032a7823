import { describe } from '@jest/globals'
import { hasEngines } from './database-images.ts'

/** For tests on engines of databases: skipped where none can be had. */
export const describeEngines = hasEngines ? describe : describe.skip
