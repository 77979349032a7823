import { describe } from '@jest/globals'
import { hasPebble } from './pebble.ts'

if (!hasPebble)
  console.warn('The tests of ACME are skipped: script/bootstrap needs Go to build Pebble on this machine.')

/** Skipped where script/bootstrap could not build Pebble. */
export const describeAcme = hasPebble ? describe : describe.skip
