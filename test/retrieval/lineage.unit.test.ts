import { describe, expect, test } from '@jest/globals'
import { type FormerDisk, isLost, lostFrom, marginMs, safelyBefore } from '../../models/retrieval/lineage.ts'

// Which documents a store has after it was restored from snapshots.

const hour = (count: number): Date => new Date(Date.UTC(2026, 0, 1, count))

/** Restored twice: from a snapshot of `first` at 3, of `second` at 7. */
const former_disks: FormerDisk[] = [
  { disk_id: 'first', until: hour(3) },
  { disk_id: 'second', until: hour(7) },
]
const store = { disk_id: 'third', former_disks }

const cases = [
  ['on the present disk', 'third', hour(9), false],
  ['before the first snapshot', 'first', hour(2), false],
  ['at the time of the first snapshot', 'first', hour(3), true],
  ['after the first snapshot, on the disk that was replaced', 'first', hour(4), true],
  ['before the second snapshot', 'second', hour(6), false],
  ['after the second snapshot', 'second', hour(8), true],
  ['on a disk that did not stay', 'other', hour(2), true],
  ['before this was recorded', null, null, true],
] as const

describe('a document that was indexed', () => {
  test.each(cases)('%s', (_, indexed_in, indexed_at, lost) => {
    const document = { indexed_version: 4, indexed_in, indexed_at }
    expect(isLost(store, document)).toBe(lost)
    expect(meets(document, lostFrom(store))).toBe(lost)
  })

  test('nowhere is not lost', () => {
    const document = { indexed_version: null, indexed_in: null, indexed_at: null }
    expect(isLost(store, document)).toBe(false)
    expect(meets(document, lostFrom(store))).toBe(false)
  })

  test('while the clocks differ or the snapshot begins is not taken for certain', () => {
    expect(hour(3).getTime() - safelyBefore(hour(3)).getTime()).toBe(marginMs)
  })
})

type Fields = Record<string, unknown>

/** Whether MongoDB would find the document, for the operators that the filter has. */
function meets(document: Fields, filter: Fields): boolean {
  return Object.entries(filter).every(([field, condition]) => {
    if (field === '$nor') return !(condition as Fields[]).some((one) => meets(document, one))
    const value = document[field]
    if (typeof condition !== 'object' || condition === null) return value === condition
    const { $ne, $lt } = condition as { $ne?: unknown; $lt?: Date }
    // A missing date is before no date.
    if ($lt) return value instanceof Date && value < $lt
    return value !== $ne
  })
}
