import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, afterEach, beforeEach, expect, jest, test } from '@jest/globals'
import Counts from '../support/counts.ts'
import { recorded } from '../support/times.ts'

const folder = mkdtempSync(join(tmpdir(), 'keelson-summary-'))
afterAll(() => rmSync(folder, { recursive: true }))
// The reporter ends a process that does not end by itself: here that would be the one that runs all other tests.
beforeEach(() => void jest.useFakeTimers())
afterEach(() => {
  jest.clearAllTimers()
  jest.useRealTimers()
})

const fileOf = (name: string): string => resolve(import.meta.dirname, '..', name)
const passed = { fullName: 'passes', status: 'passed', failureMessages: [] as string[] }
const failed = {
  fullName: 'deletes a disk',
  status: 'failed',
  failureMessages: ['\u001B[31mexpected\u001B[39m 204\nreceived 409'],
}

test('a run ends with its failures, without colours, and the counts', () => {
  const path = join(folder, 'counts')
  process.env['KEELSON_TEST_COUNTS'] = path
  new Counts().onRunComplete(undefined, {
    numPassedTests: 1,
    numFailedTests: 1,
    numRuntimeErrorTestSuites: 1,
    numPendingTests: 0,
    numTodoTests: 0,
    testResults: [
      {
        testFilePath: fileOf('storage/disks.test.ts'),
        perfStats: { runtime: 1000 },
        testResults: [passed, failed],
      },
      {
        testFilePath: fileOf('mail/mails.test.ts'),
        perfStats: { runtime: 2000 },
        testResults: [],
        testExecError: { message: 'no such module' },
      },
    ],
  })
  const summary = spawnSync(process.execPath, [fileOf('support/summary.ts'), path], { encoding: 'utf8' })
  expect(summary.stdout.split('\n')).toEqual([
    'The slowest files:',
    '     2 s  mail/mails.test.ts',
    '     1 s  storage/disks.test.ts',
    '',
    'FAILED storage/disks.test.ts: deletes a disk',
    '  expected 204',
    '  received 409',
    '',
    'FAILED mail/mails.test.ts: outside the tests',
    '  no such module',
    '1 passed, 2 failed, 0 skipped',
    '',
  ])
  expect(summary.status).toBe(1)
})

test('--times keeps the seconds of a file that has passed, and of no other', () => {
  const [path, times] = [join(folder, 'more-counts'), join(folder, 'times.json')]
  process.env['KEELSON_TEST_COUNTS'] = path
  const one = (name: string, testResults: (typeof passed)[]) => ({
    testFilePath: fileOf(name),
    perfStats: { runtime: 12_345_000 },
    testResults,
  })
  const skipped = { fullName: 'is skipped', status: 'pending', failureMessages: [] as string[] }
  const [whole, broken, unmeasured] = [
    'storage/disks.test.ts',
    'mail/webhook.test.ts',
    'docs/compute.test.ts',
  ] as const
  new Counts().onRunComplete(undefined, {
    numPassedTests: 2,
    numFailedTests: 1,
    numRuntimeErrorTestSuites: 0,
    numPendingTests: 2,
    numTodoTests: 0,
    testResults: [one(whole, [passed, skipped]), one(broken, [passed, failed]), one(unmeasured, [skipped])],
  })
  spawnSync(process.execPath, [fileOf('support/summary.ts'), '--times', times, path])
  const kept = JSON.parse(readFileSync(times, 'utf8')) as Record<string, number>
  expect(kept[whole]).toBe(12_345)
  expect([kept[broken], kept[unmeasured]]).toEqual([recorded[broken], recorded[unmeasured]])
})
