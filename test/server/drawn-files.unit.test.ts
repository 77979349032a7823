import { globSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { drawnFiles } from '../support/drawn-files.ts'
import { isLong } from '../support/long.ts'
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
  const spare = 3 * 300 - secondsOfAll(inArea(drawn, 'deploy'))
  expect(spare).toBeGreaterThanOrEqual(0)
  for (const file of left) expect(secondsOf(file)).toBeGreaterThan(spare)
})

test('what examines everything is in every run', () => {
  const everything = ['api/contract', 'api/isolation', 'operations/replay.unit', 'operations/secrets']
  expect(drawnFiles(all)).toEqual(expect.arrayContaining(everything.map((name) => `${name}.test.ts`)))
})
