import { expect, test } from '@jest/globals'
import { isDue } from '../../../drivers/docker/host-images.ts'

const hours = 3_600_000
const week = 7 * 24 * hours

test.each([
  { idle: 0.5, lacksRoom: true, due: false }, // a start may be about to use it
  { idle: 2, lacksRoom: true, due: true },
  { idle: 2, lacksRoom: false, due: false },
  { idle: 7 * 24 - 1, lacksRoom: false, due: false },
  { idle: 7 * 24 + 1, lacksRoom: false, due: true },
])(
  'an image unused for $idle hours is removed: $due, if the disk lacks room: $lacksRoom',
  ({ idle, lacksRoom, due }) => {
    expect(isDue(idle * hours, week, lacksRoom)).toBe(due)
  },
)

test('an image that a start may be about to use stays, whatever is set', () => {
  expect(isDue(0.5 * hours, 0, true)).toBe(false)
})
