import { describe, expect, test } from '@jest/globals'
import { makeSeen } from '../../api/compute/observation/seen-lines.ts'
import { streamsInOrder, type TimedLine } from '../../api/compute/observation/timed-lines.ts'

const timeOf = (number: number): string => new Date(Date.UTC(2026, 0, 1) + 1_000 * number).toISOString()
/** '3e' is the line of stderr at second 3. */
const line = (text: string): TimedLine => ({
  text,
  time: timeOf(Number.parseInt(text, 10)),
  stream: text.endsWith('e') ? 'stderr' : 'stdout',
})
const texts = (lines: TimedLine[]): string[] => lines.map(({ text }) => text)
const numbers = (from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, i) => String(from + i))

describe('lines that are read again', () => {
  test.each([
    ['are left out', ['1', '2e', '3'], ['2e', '3', '4'], ['4']],
    ['are left out also if the last one is not the newest', ['1', '3', '2e'], ['2e', '3'], []],
    [
      'do not hide a line of the other stream that was written after newer ones',
      ['3', '4e'],
      ['2', '5'],
      ['5'],
    ],
    ['do not hide the first line of the other stream', ['3'], ['2e', '3'], ['2e']],
    [
      'bring no line of the other stream from before the ones that were asked for',
      numbers(10, 110),
      ['9e', '11e', '109', '110'],
      ['11e', '110'],
    ],
  ])('%s', (_, first, second, fresh) => {
    const seen = makeSeen()
    expect(texts(seen.add('a', first.map(line)))).toEqual(first)
    expect(seen.add('b', [line('1')])).toHaveLength(1)
    expect(texts(seen.add('a', second.map(line)))).toEqual(fresh)
  })

  test('are those up to a time, where none was read', () => {
    const seen = makeSeen()
    expect([seen.until('a'), seen.askFrom('a')]).toEqual([undefined, undefined])
    seen.begin('a', timeOf(3))
    expect([seen.until('a'), seen.askFrom('a')]).toEqual([timeOf(3), timeOf(3)])
    expect(texts(seen.add('a', ['2', '3e', '4e', '4'].map(line)))).toEqual(['4e', '4'])
  })

  test('are asked for from before the newest one', () => {
    const seen = makeSeen()
    seen.add('a', ['1', '9', '8e'].map(line))
    expect([seen.until('a'), seen.askFrom('a')]).toEqual([timeOf(9), timeOf(4)])
  })
})

test('the streams of a replica come in order of time', async () => {
  async function* source(): AsyncGenerator<TimedLine[]> {
    yield ['2', '3', '1e'].map(line)
    yield numbers(5, 200).map(line)
    yield ['150e', '200'].map(line)
  }
  const found = (await Array.fromAsync(streamsInOrder(source()))).flat()
  const expected = ['1e', '2', '3', ...numbers(5, 151), '150e', ...numbers(151, 201)]
  expect(texts(found)).toEqual(expected)
})
