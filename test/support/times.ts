import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The recorded seconds of test files, by their paths below test/: `script/test --times` writes them. */
export const recorded = JSON.parse(readFileSync(join(import.meta.dirname, 'times.json'), 'utf8')) as Record<
  string,
  number
>
const sum = (seconds: number[]): number => seconds.reduce((all, one) => all + one, 0)
const mean = sum(Object.values(recorded)) / Math.max(1, Object.keys(recorded).length)

/** The recorded seconds of a file; for a new file, the mean of all, or a second without a stack. */
export const secondsOf = (file: string): number =>
  recorded[file] ?? (file.endsWith('.unit.test.ts') ? 1 : mean)
