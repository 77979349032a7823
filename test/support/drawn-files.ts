import { globSync } from 'node:fs'
import { resolve } from 'node:path'
import { isLong } from './long.ts'
import { Dice } from './random.ts'
import { numberOf, seed } from './sampled.ts'
import { secondsOf } from './times.ts'

/**
 * What the files of an area, a folder of test/, may take in a run of all files: seconds of times.json. Some 2.4 files run at
 * once, so this is 2 minutes of the run.
 */
const budgetSec = 300
/** Areas in which several were built. */
const budgets: Record<string, number> = { deploy: 3 * budgetSec, compute: 2 * budgetSec }
/** What examines all operations, all workflows, and all that the other files leave. */
const always = [
  'api/contract.test.ts',
  'api/isolation.test.ts',
  'operations/replay.unit.test.ts',
  'operations/secrets.test.ts',
]

const areaOf = (file: string): string => file.split('/')[0] ?? ''

/** The files of this run, by their paths below test/. A run of areas has all, of which jest takes those of the areas. */
export function filesOfRun(): string[] {
  const all = globSync('**/*.test.ts', { cwd: resolve(import.meta.dirname, '..') })
  return process.env['KEELSON_TEST_DRAWS'] ? drawnFiles(all) : all
}

/**
 * The files of a run of all files, by their paths below test/: of an area that takes longer than its budget, as many as fit,
 * drawn by the seed. The long form has all.
 */
export const drawnFiles = (files: string[]): string[] =>
  isLong ? files : [...Map.groupBy(files, areaOf)].flatMap(([area, all]) => fitting(area, all))

function fitting(area: string, all: string[]): string[] {
  const drawn = new Dice(seed ^ numberOf(area)).shuffled(all.toSorted())
  const inTurn = drawn.toSorted((a, b) => Number(always.includes(b)) - Number(always.includes(a)))
  let left = budgets[area] ?? budgetSec
  return inTurn.filter((file) => {
    if (secondsOf(file) > left) return false
    left -= secondsOf(file)
    return true
  })
}
