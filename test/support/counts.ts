import { writeFileSync } from 'node:fs'
import { relative, resolve } from 'node:path'
import { stripVTControlCharacters } from 'node:util'

interface FileResult {
  testFilePath: string
  perfStats: { runtime: number }
  testResults: { fullName: string; status: string; failureMessages: string[] }[]
  /** What failed outside the tests, for example an import. */
  testExecError?: { message: string } | null
}
interface Results {
  numPassedTests: number
  numFailedTests: number
  numRuntimeErrorTestSuites: number
  numPendingTests: number
  numTodoTests: number
  testResults: FileResult[]
}

/** The counts of one run of jest, for test/support/summary.ts. */
export interface Counted {
  passed: number
  failed: number
  skipped: number
  /** Of each failed test: its file, its name and the first lines of its error. */
  failures: string[]
  /** Seconds by a file's path below test/. */
  seconds: Record<string, number>
  /** The files whose seconds say how long they take: they passed, and have run a test. */
  whole: string[]
}

const tests = resolve(import.meta.dirname, '..')
/** A comparison with its difference, and the line of the test, fit. */
const linesOfFailure = 30

function failuresOf({ testFilePath, testResults, testExecError }: FileResult): string[] {
  const failed = testResults
    .filter(({ status }) => status === 'failed')
    .map(({ fullName, failureMessages }) => [fullName, ...failureMessages])
  if (testExecError) failed.push(['outside the tests', testExecError.message])
  return failed.map(([name, ...messages]) => {
    const lines = stripVTControlCharacters(messages.join('\n')).split('\n').slice(0, linesOfFailure)
    return [`${relative(tests, testFilePath)}: ${name}`, ...lines.map((line) => `  ${line}`)].join('\n')
  })
}

const isWhole = ({ testResults, testExecError }: FileResult): boolean =>
  !testExecError &&
  testResults.some(({ status }) => status === 'passed') &&
  testResults.every(({ status }) => status !== 'failed')

/** jest ends when nothing is open any more: never, if a test has left a loop or a server. */
const endsWithinMs = 120_000

/** Writes the counts of a run. A file that fails outside its tests counts as one more failure, and so does a run that does not end. */
export default class Counts {
  onRunComplete(_: unknown, results: Results): void {
    const path = process.env['KEELSON_TEST_COUNTS']
    if (!path) return
    const counted: Counted = {
      passed: results.numPassedTests,
      failed: results.numFailedTests + results.numRuntimeErrorTestSuites,
      skipped: results.numPendingTests + results.numTodoTests,
      failures: results.testResults.flatMap(failuresOf),
      whole: results.testResults.filter(isWhole).map(({ testFilePath }) => relative(tests, testFilePath)),
      seconds: Object.fromEntries(
        results.testResults.map(({ testFilePath, perfStats }) => [
          relative(tests, testFilePath),
          Math.round(perfStats.runtime / 1000),
        ]),
      ),
    }
    writeFileSync(path, JSON.stringify(counted))
    const late = setTimeout(() => {
      const left = `jest did not end by itself: ${process.getActiveResourcesInfo().join(', ')} left open`
      const { failed, failures } = counted
      writeFileSync(path, JSON.stringify({ ...counted, failed: failed + 1, failures: [...failures, left] }))
      console.error(left)
      process.exit(1)
    }, endsWithinMs)
    late.unref()
  }
}
