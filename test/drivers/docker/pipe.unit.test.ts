import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { expect, test } from '@jest/globals'
import { takeFrames } from '../../../drivers/docker/pipe.ts'

const frame = (stream: number, content: string): Buffer => {
  const header = Buffer.alloc(8)
  header[0] = stream
  header.writeUInt32BE(Buffer.byteLength(content), 4)
  return Buffer.concat([header, Buffer.from(content)])
}

test.each([1, 3, 8, 9, 1_000])('the content of frames is whole, in chunks of %i bytes', async (size) => {
  const raw = new PassThrough()
  const content = buffer(takeFrames(raw))
  const sent = Buffer.concat(['first ', '', 'second ', 'third'].map((words) => frame(1, words)))
  for (let at = 0; at < sent.length; at += size) raw.write(sent.subarray(at, at + size))
  raw.end()
  expect((await content).toString()).toBe('first second third')
})

test.each([1, 1_000])(
  'what a command writes to stderr fails its stream, in chunks of %i bytes',
  async (size) => {
    const raw = new PassThrough()
    const pipe = takeFrames(raw).resume()
    const sent = Buffer.concat([frame(1, 'content'), frame(2, ' no such file\n')])
    for (let at = 0; at < sent.length; at += size) raw.write(sent.subarray(at, at + size))
    const [error] = (await once(pipe, 'error')) as [Error & { cause: Error }]
    expect(error.cause.message).toBe('no such file')
    expect(raw.destroyed).toBe(true)
  },
)
