import { expect, test } from '@jest/globals'
import { inOrderOfTime, type TimedLine } from '../../api/compute/observation/timed-lines.ts'

async function* source(...batches: string[][]): AsyncGenerator<TimedLine[]> {
  for (const lines of batches) yield lines.map((text) => ({ time: text.slice(0, 1), text }))
}

async function joined(...sources: AsyncIterable<TimedLine[]>[]): Promise<string[]> {
  const all: string[] = []
  for await (const lines of inOrderOfTime(sources)) all.push(...lines.map(({ text }) => text))
  return all
}

test('lines of all sources come in order of time, and those of one moment in the order of their sources', async () => {
  expect(
    await joined(source(['1a', '3a'], ['3b', '5a']), source(['2c', '3c'], [], ['3d']), source()),
  ).toEqual(['1a', '2c', '3a', '3b', '3c', '3d', '5a'])
  expect(await joined(source(['2c', '3c', '3d']), source(['1a', '3a', '3b', '5a']))).toEqual([
    '1a',
    '2c',
    '3c',
    '3d',
    '3a',
    '3b',
    '5a',
  ])
})
