import { globSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { budgetOf, drawnFiles, fitting } from '../support/drawn-files.ts'
import { isLong } from '../support/long.ts'
import { Dice } from '../support/random.ts'
import { secondsOf } from '../support/times.ts'

const all = globSync('**/*.test.ts', { cwd: join(import.meta.dirname, '..') })
const secondsOfAll = (files: string[]): number => files.reduce((sum, file) => sum + secondsOf(file), 0)
const inArea = (files: string[], area: string): string[] =>
  files.filter((file) => file.startsWith(`${area}/`))

test('a run of all files has the same files each time, whatever their order, and each file once', () => {
  const drawn = drawnFiles(all)
  expect(drawnFiles(all.toReversed()).toSorted()).toEqual(drawn.toSorted())
  expect(new Set(drawn).size).toBe(drawn.length)
})

test('an area within its budget has all its files, and one beyond it as many as fit', () => {
  const drawn = drawnFiles(all)
  expect(inArea(drawn, 'mail').toSorted()).toEqual(inArea(all, 'mail').toSorted())
  if (isLong) return expect(drawn).toHaveLength(all.length)
  const left = inArea(all, 'deploy').filter((file) => !drawn.includes(file))
  const spare = budgetOf('deploy') - secondsOfAll(inArea(drawn, 'deploy'))
  expect(spare).toBeGreaterThanOrEqual(0)
  for (const file of left) expect(secondsOf(file)).toBeGreaterThan(spare)
})

test('a file that takes longer than its area has is drawn too, alone', () => {
  const seconds: Record<string, number> = { 'a.test.ts': 500, 'b.test.ts': 100, 'c.test.ts': 150 }
  const drawn = [...Array(20).keys()].map((seed) =>
    fitting(Object.keys(seconds), 300, new Dice(seed), (file) => seconds[file] ?? 0).toSorted(),
  )
  expect(drawn).toContainEqual(['a.test.ts'])
  expect(drawn).toContainEqual(['b.test.ts', 'c.test.ts'])
})

test('what examines everything is in every run', () => {
  const everything = ['api/contract', 'api/isolation', 'operations/replay.unit', 'operations/secrets']
  expect(drawnFiles(all)).toEqual(expect.arrayContaining(everything.map((name) => `${name}.test.ts`)))
})
