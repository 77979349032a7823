import { expect, test } from '@jest/globals'
import { hintOf } from '../../lib/secret-hints.ts'

test.each([
  ['the last four characters of a long secret', 'sk-live-0123456789', '6789'],
  ['the last four of the shortest that shows any', '0123456789abcdef', 'cdef'],
  ['nothing of a shorter one', '0123456789abcde', null],
  ['nothing of an empty one', '', null],
])('a hint is %s', (_, secret, hint) => {
  expect(hintOf(secret)).toBe(hint)
})
