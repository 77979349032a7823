import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { makeHostImages } from '../../../drivers/docker/host-images.ts'
import { docker, engine, testHost } from '../../support/containers.ts'
import { readSettings } from '../../../config.ts'
import { type ImageRegistry, serveImage } from '../../support/image-registry.ts'

// A tenant asks for images that would fill the host's disk.

const mebibyte = 1024 ** 2
const gibibyte = 1024 ** 3
const hourMs = 3_600_000
const dayMs = 24 * hourMs

let folder: string
const served: ImageRegistry[] = []
const serve = async (...image: Parameters<typeof serveImage>): Promise<string> => {
  const registry = await serveImage(...image)
  served.push(registry)
  return registry.image
}
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-images-'))
})
afterEach(async () => {
  for (const { image, close } of served.splice(0)) {
    close()
    await docker
      .getImage(image)
      .remove({ force: true })
      .catch(() => {})
  }
  await rm(folder, { recursive: true })
})

const images = (over: { mostBytes?: number; freeBytes?: number } = {}) =>
  makeHostImages({
    mayAsk: async () => true,
    dockerHost: readSettings('host').KEELSON_DOCKER_HOST,
    folder,
    mostBytes: gibibyte,
    freeBytes: 0,
    unusedMs: 7 * dayMs,
    ...over,
  })
const isOnEngine = (image: string): Promise<boolean> =>
  docker
    .getImage(image)
    .inspect()
    .then(
      () => true,
      () => false,
    )
const records = () => readdir(folder)
/** As if everything that the host pulled had last been used that long ago. */
async function age(ms: number): Promise<void> {
  const then = new Date(Date.now() - ms)
  for (const name of await records()) await utimes(join(folder, name), then, then)
}

describe('an image that is too large', () => {
  test('is given up as soon as its layers are known, and leaves nothing', async () => {
    const image = await serve(1, 3 * gibibyte)
    await expect(images().pull(image)).rejects.toMatchObject({
      code: 'image_too_large',
      permanent: true,
      message: `The image ${image} is larger than 1 GiB`,
    })
    expect([await isOnEngine(image), await records()]).toEqual([false, []])
  })

  test('is removed if only its unpacked files are', async () => {
    const image = await serve(3 * mebibyte) // some kilobytes, compressed
    await expect(images({ mostBytes: mebibyte }).pull(image)).rejects.toMatchObject({
      code: 'image_too_large',
    })
    expect([await isOnEngine(image), await records()]).toEqual([false, []])
  })
})

describe('an image that the host pulled', () => {
  test('is removed when nothing has used it for days, not while a container has it', async () => {
    const image = await serve(1)
    await images().pull(image)
    const container = await docker.createContainer({ Image: image, Labels: { 'keelson.test': testHost } })
    try {
      await age(8 * dayMs)
      expect(await images().collect()).toEqual([])
    } finally {
      await container.remove()
    }
    await age(6 * dayMs)
    expect(await images().collect()).toEqual([])
    await age(8 * dayMs)
    await images().pull(image) // a start uses it
    expect(await images().collect()).toEqual([])
    expect(await isOnEngine(image)).toBe(true)
    await age(8 * dayMs)
    expect(await images().collect()).toEqual([image])
    expect([await isOnEngine(image), await records()]).toEqual([false, []])
  })

  test('makes room while the disk has less than is to stay free; without room none is pulled', async () => {
    const [old, recent, next] = [await serve(1), await serve(2), await serve(3)]
    await images().pull(old)
    await age(2 * hourMs)
    await images().pull(recent)
    const full = images({ freeBytes: Number.MAX_SAFE_INTEGER })
    await expect(full.pull(next)).rejects.toMatchObject({ code: 'host_disk_full' })
    expect([await isOnEngine(old), await isOnEngine(recent), await isOnEngine(next)]).toEqual([
      false,
      true,
      false,
    ])
    expect(await full.pull(recent)).toBeTruthy() // no room is needed
  })

  test('by a worker that was killed before it noted the end, is taken over', async () => {
    const image = await serve(1)
    await images().pull(image)
    const [name = ''] = await records()
    await rm(join(folder, name))
    await writeFile(join(folder, 'begun.json'), JSON.stringify({ id: null, references: [image] }))
    await age(2 * hourMs)
    expect(await images().collect()).toEqual([])
    const [noted = ''] = await records()
    expect(JSON.parse(await readFile(join(folder, noted), 'utf8'))).toEqual({
      id: expect.stringMatching(/^sha256:/),
      references: [image],
    })
    await age(8 * dayMs)
    expect(await images().collect()).toEqual([image])
  })
})

test('an image that somebody brought to the engine stays, also if its name was once pulled', async () => {
  const [by_hand, pulled] = [await serve(1), await serve(2)]
  await engine.pull(by_hand) // without a record, as `docker load`
  await images().pull(pulled)
  // Another image gets the name.
  await docker.getImage(pulled).remove()
  await docker.getImage(by_hand).tag({ repo: pulled.slice(0, -2), tag: '1' })
  await age(8 * dayMs)
  await images({ freeBytes: Number.MAX_SAFE_INTEGER }).collect()
  expect([await isOnEngine(by_hand), await isOnEngine(pulled)]).toEqual([true, true])
})
