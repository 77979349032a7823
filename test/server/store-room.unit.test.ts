import { expect, test } from '@jest/globals'
import { isFull } from '../../models/store-room.ts'

const gib = 1024 ** 3

test.each([
  { free: 6, reusable: 0, kept: 5, full: false },
  { free: 4, reusable: 0, kept: 5, full: true },
  // The files of removed blobs are used again before MongoDB takes more of its disk.
  { free: 4, reusable: 1, kept: 5, full: false },
  { free: 4, reusable: 0.9, kept: 5, full: true },
  { free: 0, reusable: 0, kept: 0, full: false },
])(
  'a store with $free GiB free and $reusable GiB to use again is full: $full, if $kept GiB are kept',
  ({ free, reusable, kept, full }) => {
    expect(isFull({ free: free * gib, reusable: reusable * gib }, kept * gib)).toBe(full)
  },
)
