import { expect, test } from '@jest/globals'
import { Duplex, Readable } from 'node:stream'
import { makeAppFolders } from '../../../drivers/swarm/app-folders.ts'

/** A script in a machine, which begins late and ends when its input has. */
function script() {
  const seen = { ended: false, input: '' }
  const stream = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, callback) {
      seen.input += chunk.toString()
      callback()
    },
    final(callback) {
      callback()
      setTimeout(() => {
        seen.ended = true
        stream.push('keelson: done\n')
        stream.push(null)
      }, 50)
    },
  })
  return { seen, folders: makeAppFolders(async () => stream) }
}

async function* refused(): AsyncGenerator<Buffer> {
  yield Buffer.from('a file')
  throw new Error('the archive is refused')
}

// Otherwise a removal of the folder could come before the script has made it.
test('an archive that is refused fails once its script has ended', async () => {
  const { seen, folders } = script()
  await expect(folders.put('m', 'shop', 'v', Readable.from(refused()))).rejects.toThrow(
    'the archive is refused',
  )
  expect(seen).toEqual({ ended: true, input: 'a file' })
})

test('a whole archive is sent whole', async () => {
  const { seen, folders } = script()
  await folders.put('m', 'shop', 'v', Readable.from([Buffer.from('one, '), Buffer.from('two')]))
  expect(seen).toEqual({ ended: true, input: 'one, two' })
})
