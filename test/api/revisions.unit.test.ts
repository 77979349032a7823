import { expect, test } from '@jest/globals'
import { etagOf, revisionsIn } from '../../api/revisions.ts'

test.each([
  [undefined, null],
  ['*', null],
  ['"7"', [7]],
  [' "7" , "12" ', [7, 12]],
  ['W/"7"', []],
  ['W/"7", "8"', [8]],
  ['"7a"', []],
  ['"a,b"', []],
  ['""', []],
  [`"${'9'.repeat(400)}"`, []],
])('If-Match: %s allows %j', (header, revisions) => {
  expect(revisionsIn(header)).toEqual(revisions)
})

test.each(['7', '"7', '"7" "8"', '"7",', 'w/"7"', '*, "7"', ''])('If-Match: %s is refused', (header) => {
  expect(() => revisionsIn(header)).toThrow(expect.objectContaining({ status: 400, code: 'invalid_input' }))
})

test('An answer carries the revision of what it shows', () => {
  expect(etagOf({ revision: 7 })).toBe('"7"')
  expect(etagOf({ location: '/things/1', body: { revision: 1 } })).toBe('"1"')
  for (const answer of [undefined, null, {}, { revision: '7' }, { location: '/things/1', body: null }])
    expect(etagOf(answer)).toBeNull()
})
