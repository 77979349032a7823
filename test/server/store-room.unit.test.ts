import { expect, test } from '@jest/globals'
import { isFull, refusesWork } from '../../models/store-room.ts'

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

test.each([
  { free: 1.1, total: 20, kept: 5, refused: false },
  { free: 0.9, total: 20, kept: 5, refused: true },
  // A large disk with room for more than is kept takes work at any share.
  { free: 6, total: 1000, kept: 5, refused: false },
  { free: 4, total: 1000, kept: 5, refused: true },
  { free: 0, total: 20, kept: 0, refused: false },
])(
  'new work with $free of $total GiB free is refused: $refused, if $kept GiB are kept',
  ({ free, total, kept, refused }) => {
    expect(refusesWork({ free: free * gib, total: total * gib }, kept * gib)).toBe(refused)
  },
)
