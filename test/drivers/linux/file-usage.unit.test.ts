import { link, mkdir, mkdtemp, open, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { bytesOf } from '../../../drivers/linux/file-usage.ts'

const block = 4096
const mebibyte = 1024 ** 2
let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-usage-'))
})
afterEach(() => rm(folder, { recursive: true }))

const { signal } = new AbortController()
const count = (limit = Number.MAX_SAFE_INTEGER, threads: number[] = []): Promise<number> =>
  bytesOf({ paths: [folder, join(folder, 'no-such-file')], threads, besides: [] }, limit, signal)

test('files count with their blocks, with one at least, and once for all their names', async () => {
  const empty = await count()
  await mkdir(join(folder, 'sub'))
  await writeFile(join(folder, 'large'), Buffer.alloc(4 * mebibyte, 1))
  await link(join(folder, 'large'), join(folder, 'sub', 'again'))
  for (let at = 0; at < 10; at++) await writeFile(join(folder, 'sub', `empty${at}`), '')
  const added = (await count()) - empty
  expect(added).toBeGreaterThanOrEqual(4 * mebibyte + 11 * block)
  expect(added).toBeLessThan(4 * mebibyte + 11 * block + 64 * 1024)
})

test('counting ends beyond the limit', async () => {
  for (let at = 0; at < 50; at++) await writeFile(join(folder, `${at}`), Buffer.alloc(block, 1))
  const counted = await count(10 * block)
  expect(counted).toBeGreaterThan(10 * block)
  expect(counted).toBeLessThan(20 * block)
})

test('a deleted file counts once for all that have it open', async () => {
  const before = await count(undefined, [process.pid])
  const path = join(folder, 'deleted')
  const [file, again] = [await open(path, 'w'), await open(path, 'r')]
  try {
    await rm(path)
    await file.writeFile(Buffer.alloc(3 * mebibyte, 1))
    const held = (await count(undefined, [process.pid, process.pid])) - before
    expect(held).toBeGreaterThanOrEqual(3 * mebibyte)
    expect(held).toBeLessThan(4 * mebibyte)
  } finally {
    await file.close()
    await again.close()
  }
})
