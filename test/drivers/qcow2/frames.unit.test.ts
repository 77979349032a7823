import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { framesOf, writeFrames } from '../../../drivers/qcow2/frames.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-frames-'))
})
afterAll(() => rm(folder, { recursive: true }))

const kib = 1024
const noise = (bytes: number) => randomBytes(bytes)
const nothing = (bytes: number) => Buffer.alloc(bytes)

async function fileOf(...parts: Buffer[]): Promise<string> {
  const file = join(folder, randomBytes(8).toString('hex'))
  await writeFile(file, Buffer.concat(parts))
  return file
}

const sent = async (file: string): Promise<Buffer> => Buffer.concat(await Array.fromAsync(framesOf(file)))

/** In pieces of this length, as a network splits them. */
function* cut(bytes: Buffer, length: number) {
  for (let from = 0; from < bytes.length; from += length) yield bytes.subarray(from, from + length)
}

async function received(frames: Buffer, pieces = 10_000): Promise<{ file: string; bytes: number }> {
  const file = join(folder, randomBytes(8).toString('hex'))
  let bytes = 0
  await writeFrames(Readable.from(cut(frames, pieces)), file, (more) => void (bytes += more))
  return { file, bytes }
}

test.each([
  ['nothing', []],
  ['a byte', [noise(1)]],
  ['zeros alone', [nothing(300 * kib)]],
  ['noise over several frames', [noise(2_500 * kib + 17)]],
  [
    'zeros between, and at the end',
    [noise(70 * kib), nothing(3_000 * kib), noise(64 * kib), nothing(130 * kib + 5)],
  ],
])('data with %s arrives unchanged, and zeros are not sent', async (_, parts) => {
  const file = await fileOf(...parts)
  const frames = await sent(file)
  const zeros = parts.filter((part) => part.every((byte) => byte === 0))
  const least = zeros.reduce((sum, part) => sum + Math.max(0, part.length - 128 * kib), 0)
  expect(frames.length).toBeLessThanOrEqual((await stat(file)).size - least + 1_000)
  for (const pieces of [7_919, 64 * kib, frames.length]) {
    const { file: copy } = await received(frames, pieces)
    expect((await readFile(copy)).equals(await readFile(file))).toBe(true)
  }
})

test('data that was changed on the way is refused, wherever the change is', async () => {
  const frames = await sent(await fileOf(noise(200 * kib), nothing(200 * kib), noise(100 * kib)))
  for (const at of [3, 100, 200 * kib + 12, frames.length - 40, frames.length - 1]) {
    const changed = Buffer.from(frames)
    changed[at] = (changed[at] ?? 0) ^ 1
    await expect(received(changed)).rejects.toMatchObject({ code: 'engine_unavailable' })
  }
})

test('data that ends too soon is refused, wherever it ends', async () => {
  const frames = await sent(await fileOf(noise(200 * kib)))
  for (const length of [0, 5, 10, 1_000, frames.length - 32, frames.length - 1])
    await expect(received(frames.subarray(0, length))).rejects.toMatchObject({
      code: 'engine_unavailable',
    })
})
