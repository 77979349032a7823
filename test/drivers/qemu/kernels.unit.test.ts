import { appendFile, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { makeKernels } from '../../../drivers/qemu/kernels.ts'

let folder: string
let built: { kernel: string; initramfs: string }
/** As a worker that starts. */
const kernels = () => makeKernels(join(folder, 'kernels'))
const dayMs = 86_400_000

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kernels-'))
  built = { kernel: join(folder, 'vmlinuz'), initramfs: join(folder, 'initramfs') }
  await writeFile(built.kernel, 'one')
  await writeFile(built.initramfs, 'its modules')
})
afterEach(() => rm(folder, { recursive: true }))

test('a kernel stays when the next one is built over it', async () => {
  const one = await kernels().keep(built)
  await writeFile(built.kernel, 'two')
  const two = await kernels().keep(built)
  expect(two.digest).not.toBe(one.digest)
  const found = await kernels().find(one.digest)
  expect(await readFile(found.kernel, 'utf8')).toBe('one')
  expect(await readFile(found.initramfs, 'utf8')).toBe('its modules')
})

test('other modules make another kernel', async () => {
  const one = await kernels().keep(built)
  await writeFile(built.initramfs, 'other modules')
  expect((await kernels().keep(built)).digest).not.toBe(one.digest)
})

test('a kernel that is gone or has changed is missing, by its digest, until it is there again', async () => {
  const { digest, initramfs } = await kernels().keep(built)
  await appendFile(initramfs, '!')
  const missing = { code: 'kernel_missing', digest, message: expect.stringContaining(digest) }
  await expect(kernels().find(digest)).rejects.toMatchObject(missing)
  await rm(dirname(initramfs), { recursive: true })
  await expect(kernels().find(digest)).rejects.toMatchObject(missing)
  expect(await kernels().findAny(digest)).toBeNull()
  expect(await kernels().keep(built)).toEqual(await kernels().find(digest))
})

test('a kernel that comes from another host is kept only if it is the right one', async () => {
  const { digest } = await kernels().keep(built)
  await rm(join(folder, 'kernels'), { recursive: true })
  await writeFile(built.kernel, 'another')
  await expect(kernels().keep(built, digest)).rejects.toMatchObject({ code: 'kernel_missing', digest })
  expect(await readdir(join(folder, 'kernels'))).toEqual([])
})

test('many that keep a kernel at once keep one', async () => {
  const its = kernels()
  const kept = await Promise.all(Array.from({ length: 5 }, () => its.keep(built)))
  expect(new Set(kept.map(({ digest }) => digest)).size).toBe(1)
  expect(await readdir(join(folder, 'kernels'))).toHaveLength(1)
})

test('a kernel that no machine uses is removed after some time', async () => {
  const its = kernels()
  const [one, two, three] = [await its.keep(built), await next('two'), await next('three')]
  async function next(text: string) {
    await writeFile(built.kernel, text)
    return its.keep(built)
  }
  const names = [one, two, three].map(({ kernel }) => dirname(kernel))
  const longAgo = new Date(Date.now() - 2 * dayMs)
  for (const name of names) await utimes(name, longAgo, longAgo)
  await its.find(three.digest) // used just now
  expect(await its.removeUnused([one.digest], dayMs)).toEqual([basename(dirname(two.kernel))])
  await expect(its.find(two.digest)).rejects.toMatchObject({ code: 'kernel_missing' })
  await its.find(one.digest)
  await its.find(three.digest)
})
