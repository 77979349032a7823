import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { publishText } from '../../../drivers/system/files.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'files-'))
})
afterAll(() => rm(folder, { recursive: true }))

test('a file that many calls write at once is complete, has the last text, and leaves no other', async () => {
  const file = join(folder, 'record.json')
  const texts = Array.from({ length: 50 }, (_, number) => `${number}`.repeat(10_000))
  await Promise.all(texts.map((text) => publishText(file, text)))
  expect(await readFile(file, 'utf8')).toBe(texts.at(-1))
  expect(await readdir(folder)).toEqual(['record.json'])
})
