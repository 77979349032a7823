import { expect, test } from '@jest/globals'
import { lastOfAll } from '../../drivers/system/log-reader.ts'
import { LastKept } from '../../lib/last-kept.ts'

const keep = (most: { count: number; bytes: number }, all: string[]) => {
  const kept = new LastKept<string>(most, ({ length }) => length)
  for (const one of all) kept.add(one)
  const { bytes, hasDropped } = kept
  return { bytes, hasDropped, all: [...kept.taken()] }
}

test.each([
  [
    { count: 5, bytes: 99 },
    { all: ['aa', 'bb', 'cc'], bytes: 6, hasDropped: false },
  ],
  [
    { count: 2, bytes: 99 },
    { all: ['bb', 'cc'], bytes: 4, hasDropped: true },
  ],
  [
    { count: 5, bytes: 5 },
    { all: ['bb', 'cc'], bytes: 4, hasDropped: true },
  ],
  [
    { count: 5, bytes: 1 },
    { all: [], bytes: 0, hasDropped: true },
  ],
  [
    { count: 0, bytes: 99 },
    { all: [], bytes: 0, hasDropped: true },
  ],
])('the last of many are kept up to a count and a size: %j', (most, kept) => {
  expect(keep(most, ['aa', 'bb', 'cc'])).toEqual(kept)
})

test('the last of very many are in order', () => {
  const all = Array.from({ length: 1000 }, (_, at) => String(at))
  expect(keep({ count: 7, bytes: 99 }, all).all).toEqual(all.slice(-7))
})

async function* entries() {
  for (const line of ['aa', 'bb', 'cc']) yield { time: '', stream: 'stdout' as const, line }
}

test('the last lines of a machine’s log have a bound of bytes', async () => {
  const found = await Array.fromAsync(lastOfAll(entries(), 100, 4))
  expect(found.map(({ line }) => line)).toEqual(['bb', 'cc'])
})
