import { globSync } from 'node:fs'
import { resolve } from 'node:path'
import { isLong } from './long.ts'
import { Dice } from './random.ts'
import { numberOf, seed } from './sampled.ts'
import { secondsOf } from './times.ts'

/**
 * What the files of an area, a folder of test/, may take in a run of all files: seconds of times.json. Some 2.4 files run at
 * once, so this is less than 2 minutes of the run. On slower machines a run took 42 minutes with 300 for each of 18 areas, and 61
 * with 270.
 */
const budgetSec = 220
/** Areas in which several were built. */
const budgets: Record<string, number> = { deploy: 3 * budgetSec, compute: 2 * budgetSec }
export const budgetOf = (area: string): number => budgets[area] ?? budgetSec
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
  isLong
    ? files
    : [...Map.groupBy(files, areaOf)].flatMap(([area, all]) =>
        fitting(all, budgetOf(area), new Dice(seed ^ numberOf(area))),
      )

/** A file that takes longer than the whole budget counts as all of it: it would never be drawn, and its time never measured. */
export function fitting(all: string[], budget: number, dice: Dice, secondsFor = secondsOf): string[] {
  const ever = all.filter((file) => always.includes(file))
  const drawn = dice.shuffled(all.filter((file) => !always.includes(file)).toSorted())
  const room = ever.reduce((left, file) => left - secondsFor(file), budget)
  let left = room
  const fits = (file: string): boolean => {
    const seconds = Math.min(secondsFor(file), room)
    if (seconds > left) return false
    left -= seconds
    return true
  }
  return [...ever, ...drawn.filter(fits)]
}
