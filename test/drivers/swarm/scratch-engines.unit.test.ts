import { PassThrough } from 'node:stream'
import { expect, test } from '@jest/globals'
import { EngineUnavailable } from '../../../drivers/errors.ts'
import { makeFreeBytes } from '../../../drivers/swarm/scratch-engines.ts'

/** The free bytes of a machine whose command says so. */
const freeOf = (said: string): Promise<number> =>
  makeFreeBytes(async () => new PassThrough().end(said))('one')

test('the free bytes of a machine are read', async () => {
  expect(await freeOf('Avail\n1234\n')).toBe(1234)
})

test.each(['', '\n', 'Avail\n', 'df: no file systems processed\n'])(
  'a machine that says %j is one that does not answer, not one with a full disk',
  async (said) => {
    await expect(freeOf(said)).rejects.toBeInstanceOf(EngineUnavailable)
  },
)
