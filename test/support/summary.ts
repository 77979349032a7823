import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import type { Counted } from './counts.ts'
import { recorded } from './times.ts'

// The end of script/test: the slowest files, each failure, and the sum of the counts of all runs of jest. `--times FILE`
// stores the seconds of each file that has passed.

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: { times: { type: 'string' } },
})
const all = positionals.map((path) => JSON.parse(readFileSync(path, 'utf8')) as Counted)
const sum = (of: (counted: Counted) => number): number => all.reduce((total, one) => total + of(one), 0)
const files = all.flatMap(({ seconds }) => Object.entries(seconds))

if (flags.times) {
  // A run has only the files that it has drawn: those of the others stay.
  const whole = new Set(all.flatMap((one) => one.whole))
  const measured = Object.fromEntries(files.filter(([file]) => whole.has(file)))
  const byName = Object.entries({ ...recorded, ...measured })
    .filter(([file]) => existsSync(resolve(import.meta.dirname, '..', file)))
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
  writeFileSync(flags.times, `${JSON.stringify(Object.fromEntries(byName), null, 2)}\n`)
}

console.log('The slowest files:')
for (const [file, seconds] of files.toSorted(([, a], [, b]) => b - a).slice(0, 20))
  console.log(`${String(seconds).padStart(6)} s  ${file}`)

// Last, because a CI server may keep only the end of what a run prints.
for (const failure of all.flatMap(({ failures }) => failures)) console.log(`\nFAILED ${failure}`)

const passed = sum((one) => one.passed)
// A filter that matches no test is a mistake.
const failed = sum((one) => one.failed) + (files.length === 0 ? 1 : 0)
console.log(`${passed} passed, ${failed} failed, ${sum((one) => one.skipped)} skipped`)
process.exit(failed > 0 ? 1 : 0)
