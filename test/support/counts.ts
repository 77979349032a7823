import { writeFileSync } from 'node:fs'
import { relative, resolve } from 'node:path'

interface Results {
  numPassedTests: number
  numFailedTests: number
  numRuntimeErrorTestSuites: number
  numPendingTests: number
  numTodoTests: number
  testResults: { testFilePath: string; perfStats: { runtime: number } }[]
}

/** The counts of one run of jest, for test/support/summary.ts. */
export interface Counted {
  passed: number
  failed: number
  skipped: number
  /** Seconds by a file's path below test/. */
  seconds: Record<string, number>
}

const tests = resolve(import.meta.dirname, '..')

/** Writes the counts of a run. A file that fails outside its tests counts as one more failure. */
export default class Counts {
  onRunComplete(_: unknown, results: Results): void {
    const path = process.env['KEELSON_TEST_COUNTS']
    if (!path) return
    const counted: Counted = {
      passed: results.numPassedTests,
      failed: results.numFailedTests + results.numRuntimeErrorTestSuites,
      skipped: results.numPendingTests + results.numTodoTests,
      seconds: Object.fromEntries(
        results.testResults.map(({ testFilePath, perfStats }) => [
          relative(tests, testFilePath),
          Math.round(perfStats.runtime / 1000),
        ]),
      ),
    }
    writeFileSync(path, JSON.stringify(counted))
  }
}
