import { PassThrough } from 'node:stream'
import { expect, test } from '@jest/globals'
import { BuildFailed, EngineUnavailable } from '../../../drivers/errors.ts'
import { makeReadFolder } from '../../../drivers/swarm/app-folders.ts'

/** Reads the folder of a machine whose script says so. */
const readFrom = (said: string) =>
  makeReadFolder(async () => new PassThrough().end(said))('one', '/opt/apps/shop', [])

test('the files of a folder are read', async () => {
  const said = `path a\ntext a ${Buffer.from('one').toString('base64')}\nkeelson: done\n`
  expect(await readFrom(said)).toEqual({ paths: ['a'], texts: { a: 'one' } })
})

test('a folder that is not there is gone', async () => {
  await expect(readFrom('keelson: no folder\n')).rejects.toBeInstanceOf(BuildFailed)
})

test.each(['', 'path a\n', 'the disk is not there yet\n'])(
  'a machine that says %j has ended or just begun, and may have the folder',
  async (said) => {
    await expect(readFrom(said)).rejects.toBeInstanceOf(EngineUnavailable)
  },
)
