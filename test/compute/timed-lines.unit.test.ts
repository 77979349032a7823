import { expect, test } from '@jest/globals'
import {
  inOrderOfTime,
  lastOf,
  streamsInOrder,
  type TimedLine,
} from '../../api/compute/observation/timed-lines.ts'

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

const long = (time: string, bytes: number): TimedLine => ({ time, text: time.repeat(bytes) })
const sizes = (batches: TimedLine[][]): number[] => batches.map(({ length }) => length)

async function* eachAlone(lines: TimedLine[]): AsyncGenerator<TimedLine[]> {
  for (const line of lines) yield [line]
}

test('long lines come in small batches', async () => {
  const lines = Array.from({ length: 7 }, () => long('1', 100_000))
  const all = (async function* () {
    yield lines
  })()
  expect(sizes(await Array.fromAsync(inOrderOfTime([all])))).toEqual([3, 3, 1])
  expect(sizes([...(await lastOf(eachAlone(lines), 7))])).toEqual([3, 3, 1])
})

test('the last lines have a bound of bytes', async () => {
  const lines = ['1', '2', '3', '4'].map((time) => long(time, 100))
  expect([...(await lastOf(eachAlone(lines), 100, 250))].flat()).toEqual(lines.slice(2))
})

test('few long lines are held to put the streams of a replica in order', async () => {
  const lines = Array.from({ length: 30 }, (_, at) => long(String.fromCharCode(65 + at), 100_000))
  const inOrder = streamsInOrder(eachAlone(lines))
  let read = 0
  const counted = (async function* () {
    for await (const batch of eachAlone(lines)) {
      read++
      yield batch
    }
  })()
  await streamsInOrder(counted).next()
  expect(read).toBe(11)
  expect((await Array.fromAsync(inOrder)).flat()).toEqual(lines)
})
