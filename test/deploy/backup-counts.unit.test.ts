import { describe, expect, test } from '@jest/globals'
import { compared, parseCounts, parseFound } from '../../activities/host/backup-counts.ts'
import { backupProtocol } from '../../api/deploy/backup-protocol.ts'
import { BackupDamaged } from '../../drivers/errors.ts'
import { countsAtMost } from '../../lib/backup-protocol.ts'

// What was restored is compared with what the dump says of itself: by an exact number, or by a range where keys expire.

const dumped = parseCounts('count 3 3 app.rows\ncount 0 0 app.empty\ncount 2 5 app.expiring\n')
const restored =
  (...lines: string[]) =>
  () =>
    compared(dumped, parseFound(lines.join('\n')))
const whole = ['count 3 app.rows', 'count 0 app.empty', 'count 4 app.expiring']
const [rows = '', empty = '', expiring = ''] = whole

describe('a restored copy', () => {
  test('is taken with exactly what was dumped', () => {
    expect(restored(...whole)()).toEqual({ by: 'restore', tables: 3, rows: 7 })
  })

  test.each([
    ['the fewest keys of a range', 2],
    ['the most keys of a range', 5],
  ])('is taken with %s', (_, keys) => {
    expect(restored(rows, empty, `count ${keys} app.expiring`)().rows).toBe(3 + keys)
  })

  test('is taken without a table that had no rows: some engines drop what is empty', () => {
    expect(restored(rows, expiring)()).toMatchObject({ tables: 2, rows: 7 })
  })

  test.each([
    ['fewer rows', ['count 2 app.rows', empty, expiring], 'app.rows has 2 rows after the restore, but had 3'],
    ['more rows', ['count 4 app.rows', empty, expiring], 'app.rows has 4 rows after the restore, but had 3'],
    ['a table without its rows', ['count 0 app.rows', empty, expiring], 'app.rows has 0 rows'],
    ['rows in a table that had none', [rows, 'count 1 app.empty', expiring], 'app.empty has 1 rows'],
    ['fewer keys than can have expired', [rows, empty, 'count 1 app.expiring'], 'app.expiring has 1 rows'],
    ['more keys than there were', [rows, empty, 'count 6 app.expiring'], 'app.expiring has 6 rows'],
    ['a missing table', [empty, expiring], 'app.rows is missing in the restored data'],
    ['missing keys', [rows, empty], 'app.expiring is missing in the restored data'],
    [
      'an extra table',
      [...whole, 'count 1 app.other'],
      'app.other is in the restored data, but not in the copy',
    ],
    ['an extra table without rows', [...whole, 'count 0 app.other'], 'app.other is in the restored data'],
    ['nothing', [], 'app.rows is missing in the restored data'],
  ])('is refused with %s', (_, lines, reason) => {
    expect(restored(...lines)).toThrow(BackupDamaged)
    expect(restored(...lines)).toThrow(reason)
  })
})

test('a dump that says nothing of itself is refused with any data', () => {
  expect(() => compared([], parseFound('count 1 app.rows'))).toThrow('app.rows is in the restored data')
})

test('the platform takes a report with the most tables and long names', () => {
  const counts = Array.from({ length: countsAtMost }, () => ({
    name: 'x'.repeat(255),
    least: 1e9,
    most: 1e9,
  }))
  const takes = backupProtocol.find(({ method, path }) => method === 'PUT' && path.endsWith('/copy'))
  expect(JSON.stringify({ counts }).length).toBeLessThan((takes?.json_kib ?? 0) * 1024)
})
