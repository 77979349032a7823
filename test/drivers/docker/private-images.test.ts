import { mkdtemp, readdir, rm, utimes } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { readSettings } from '../../../config.ts'
import type { RegistryLogin } from '../../../drivers/containers.ts'
import { makeHostImages } from '../../../drivers/docker/host-images.ts'
import { docker } from '../../support/containers.ts'
import { type ImageRegistry, serveImage } from '../../support/image-registry.ts'

// Images that are on a host's engine by the login of one tenant, and that another one names.

const hourMs = 3_600_000
const refused = { code: 'image_access_denied', permanent: true }

let folder: string
let registry: ImageRegistry
/** What the registry asks for. */
let wanted: string | null

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-images-'))
  wanted = 'ann:right'
  registry = await serveImage(Math.floor(Math.random() * 1e6), undefined, () => wanted)
})
afterEach(async () => {
  registry.close()
  await docker
    .getImage(registry.image)
    .remove({ force: true })
    .catch(() => {})
  await rm(folder, { recursive: true })
})

const images = (mayAsk = async () => true) =>
  makeHostImages({
    mayAsk,
    dockerHost: readSettings('host').KEELSON_DOCKER_HOST,
    folder,
    mostBytes: Infinity,
    freeBytes: 0,
    unusedMs: 24 * hourMs,
  })

const login = (username: string, password: string, version = `${username}.1`): RegistryLogin => ({
  username,
  password,
  version,
})
const pull = (by: RegistryLogin | null, { image = registry.image, digest = null as string | null } = {}) =>
  images().pull(image, { digest, login: async () => by })
const notes = async (): Promise<string[]> => readdir(join(folder, 'private')).catch(() => [])

test('an image is pulled with a login that the registry takes, and with no other', async () => {
  await expect(pull(null)).rejects.toMatchObject({
    ...refused,
    message: `The registry asks for credentials for the image ${registry.image}, and the tenant has none for this registry`,
  })
  await expect(pull(login('ann', 'wrong'))).rejects.toMatchObject({
    ...refused,
    message: `The registry refuses the tenant’s credentials for the image ${registry.image}`,
  })
  await expect(pull(login('ann', 'right'))).resolves.toMatchObject({ id: expect.stringMatching(/^sha256:/) })
})

describe('an image that is there by a login', () => {
  let digest: string
  beforeEach(async () => {
    ;({ digest } = await pull(login('ann', 'right')))
  })

  test('is not for a tenant without a login, or with a wrong one, by whatever name', async () => {
    for (const image of [registry.image, `${registry.image.slice(0, -2)}@${digest}`])
      for (const by of [null, login('bob', 'wrong')])
        await expect(pull(by, { image })).rejects.toMatchObject(refused)
  })

  test('is for another tenant whose own login the registry takes', async () => {
    wanted = 'bob:his'
    await expect(pull(login('bob', 'his'))).resolves.toMatchObject({ digest })
  })

  test('is for the same login again without the registry, and after a change of it only with the registry', async () => {
    registry.close()
    await expect(pull(login('ann', 'right'))).resolves.toMatchObject({ digest })
    await expect(pull(login('ann', 'new', 'ann.2'))).rejects.toMatchObject({ code: 'image_not_found' })
  })

  test('is for an instance that had these bytes before, without the registry', async () => {
    registry.close()
    await expect(pull(null, { digest })).resolves.toMatchObject({ digest })
  })

  test('is for everybody once the registry lets everybody in', async () => {
    wanted = null
    await expect(pull(null)).resolves.toMatchObject({ digest })
    registry.close()
    await expect(pull(login('bob', 'other'))).resolves.toMatchObject({ digest })
  })

  test('is noted by its repository as long as the engine has it', async () => {
    const [note = ''] = await notes()
    const long = new Date(Date.now() - 2 * hourMs)
    await utimes(join(folder, 'private', note), long, long)
    await images().collect()
    expect(await notes()).toEqual([note])
    await docker.getImage(registry.image).remove({ force: true })
    await images().collect()
    expect(await notes()).toEqual([])
  })
})

test('a repository is noted before its image is there, so that nobody gets it between', async () => {
  wanted = 'ann:right'
  await expect(pull(login('ann', 'wrong'))).rejects.toMatchObject(refused)
  expect(await notes()).toHaveLength(1)
  await images().collect() // a download may be under way for an hour
  expect(await notes()).toHaveLength(1)
})

test('an image that a login brings while another tenant’s pull has begun is not for that one', async () => {
  const bobs = images(async () => {
    await pull(login('ann', 'right'))
    return true
  })
  await expect(bobs.pull(registry.image, { login: async () => null })).rejects.toMatchObject(refused)
})

test('images pulled without a login leave no note', async () => {
  wanted = null
  await pull(null)
  expect(await notes()).toEqual([])
})
