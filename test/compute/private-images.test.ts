import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { RegistryCredential, registryCredentialsAtMost } from '../../models/compute/registry-credentials.ts'
import { sealSecret } from '../../models/secrets.ts'
import { docker } from '../support/engine.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell } from '../support/paste.ts'
import { openPrivateRegistry, type PrivateRegistry } from '../support/private-registry.ts'
import { mistakeAt } from '../support/refusals.ts'
import { allRecords } from '../support/secret-search.ts'
import { facts, layout } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Images of a registry that asks for a login, pulled by the credentials of tenants.

const [annsPassword, bobsPassword] = [newId(), newId()]
let registry: PrivateRegistry
let image: string

beforeAll(async () => {
  registry = await openPrivateRegistry({ ann: annsPassword, bob: bobsPassword })
  image = await registry.push('team/app')
})
afterAll(() => registry.close())

const shown = (text: string): boolean => text.includes(annsPassword) || text.includes(bobsPassword)
const path = '/api/v1/registry-credentials'
const keep = (tenant: TestTenant, username: string, password: string, at = registry.address) =>
  tenant.owner.ask('POST', path, { registry: at, username, password })
const isOnEngine = (): Promise<boolean> =>
  docker
    .getImage(image)
    .inspect()
    .then(
      () => true,
      () => false,
    )

const plain = { command: [], image: '' }
const run = async (tenant: TestTenant, over: object = {}) => {
  const { id, operation } = await tenant.containers.create({ ...plain, image, ...over })
  const { state, error } = await operation.end()
  return { id, state, error }
}
const runs = { state: 'succeeded', error: null }
const asksFor = (named = image) => ({
  state: 'failed',
  error: {
    code: 'image_access_denied',
    status: 409,
    detail: `The registry asks for credentials for the image ${named}, and the tenant has none for this registry`,
  },
})
const refuses = () => ({
  state: 'failed',
  error: {
    code: 'image_access_denied',
    detail: `The registry refuses the tenant’s credentials for the image ${image}`,
  },
})

test('credentials are added, replaced, listed and deleted, and never show the password', async () => {
  const tenant = await makeTenant()
  const made = await keep(tenant, 'shop', 'a-password-of-many-characters', 'Registry.Example.com:5000')
  const id = String(made.body['id'])
  expect(made).toMatchObject({
    status: 201,
    body: {
      tenant_id: tenant.id,
      registry: 'registry.example.com:5000',
      username: 'shop',
      password_hint: 'ters',
    },
  })
  expect(made.headers.get('location')).toBe(`${path}/${id}`)
  expect(await keep(tenant, 'other', 'short', 'registry.example.com:5000')).toMatchObject({
    status: 200,
    body: { id, username: 'other', password_hint: null },
  })
  const hub = await keep(tenant, 'shop', 'short', 'index.docker.io')
  expect(hub).toMatchObject({ status: 201, body: { registry: 'docker.io' } })
  const { items } = await tenant.owner.get<{ items: object[] }>(`${path}?registry=docker.io`)
  expect(items).toEqual([hub.body])
  expect(await tenant.owner.get(`${path}/${id}`)).not.toHaveProperty('password')
  const stored = await RegistryCredential.find({ tenant_id: tenant.id }).lean()
  expect(JSON.stringify(stored)).not.toContain('short')
  for (const registryName of ['ghcr', 'https://ghcr.io', 'ghcr.io/team', '', 'a b.io'])
    expect(await keep(tenant, 'shop', 'x', registryName)).toMatchObject(mistakeAt('/registry'))
  expect(await keep(tenant, 'a:b', 'x', 'ghcr.io')).toMatchObject(mistakeAt('/username'))
  expect(await tenant.owner.ask('DELETE', `${path}/${id}`)).toMatchObject({ status: 204 })
  expect(await tenant.owner.ask('DELETE', `${path}/${id}`)).toMatchObject({ status: 404 })
  const events = await tenant.owner.get<{ items: object[] }>(`/api/v1/audit-events?resource_id=${id}`)
  expect(JSON.stringify(events)).toContain('registry-credentials')
  expect(JSON.stringify(events)).not.toContain('a-password-of-many-characters')
})

test(`a tenant has credentials of ${registryCredentialsAtMost} registries at most`, async () => {
  const tenant = await makeTenant()
  const password_sealed = await sealSecret('none', 'none')
  const others = Array.from({ length: registryCredentialsAtMost - 1 }, (_, i) => ({
    tenant_id: tenant.id,
    registry: `r${i}.example.com`,
    username: 'none',
    password_sealed,
    version: 1,
  }))
  await RegistryCredential.insertMany(others.map((one) => ({ _id: newId(), ...one })))
  expect(await keep(tenant, 'shop', 'x', 'last.example.com')).toMatchObject({ status: 201 })
  expect(await keep(tenant, 'shop', 'x', 'more.example.com')).toMatchObject({
    status: 409,
    body: { code: 'too_many_registry_credentials' },
  })
  expect(await keep(tenant, 'shop', 'y', 'last.example.com')).toMatchObject({ status: 200 })
  // What is sealed for nothing would fail a rotation of the key in another test.
  await RegistryCredential.deleteMany({ tenant_id: tenant.id })
})

describe('a private image', () => {
  test('is refused without credentials and with wrong ones, and runs with right ones', async () => {
    const tenant = await makeTenant()
    expect(await run(tenant)).toMatchObject(asksFor())
    await keep(tenant, 'ann', 'wrong')
    const { id, ...refused } = await run(tenant)
    expect(refused).toMatchObject(refuses())
    expect((await tenant.containers.get(id)).status_reason).toBe(refused.error?.detail)
    expect(await isOnEngine()).toBe(false)
    expect(await keep(tenant, 'ann', annsPassword)).toMatchObject({ status: 200 })
    expect(await run(tenant)).toMatchObject(runs)
    expect(await isOnEngine()).toBe(true)
  })

  test('that one tenant’s credentials brought to the host is another’s only by its own', async () => {
    const [ann, bob] = [await makeTenant(), await makeTenant()]
    await keep(ann, 'ann', annsPassword)
    expect(await run(ann)).toMatchObject(runs)
    expect(await isOnEngine()).toBe(true)
    const { RepoDigests } = await docker.getImage(image).inspect()
    const byDigest = RepoDigests.find((name) => name.startsWith(registry.address)) ?? ''
    for (const named of [image, byDigest])
      expect(await run(bob, { image: named })).toMatchObject(asksFor(named))
    expect(await run(bob, { start: false })).toMatchObject(asksFor())
    await keep(bob, 'bob', annsPassword)
    expect(await run(bob)).toMatchObject(refuses())
    await keep(bob, 'bob', bobsPassword)
    expect(await run(bob)).toMatchObject(runs)
  })

  test('is not a microVM’s of another tenant either', async () => {
    const [ann, bob] = [await makeTenant(), await makeTenant()]
    await keep(ann, 'ann', annsPassword)
    expect(await run(ann)).toMatchObject(runs)
    const guest = { ...plain, image }
    const refused = await bob.microvms.create(guest)
    expect(await refused.operation.end()).toMatchObject(asksFor())
    await keep(bob, 'bob', bobsPassword)
    const taken = await bob.microvms.create(guest)
    await taken.operation.success()
  })

  test('follows a change and a deletion of the credentials; what has run before starts again', async () => {
    const tenant = await makeTenant()
    const { body } = await keep(tenant, 'ann', annsPassword)
    const { id, ...first } = await run(tenant)
    expect(first).toMatchObject(runs)
    const other = newId()
    await registry.change({ ann: other, bob: bobsPassword })
    await keep(tenant, 'ann', 'mistyped')
    expect(await run(tenant)).toMatchObject(refuses())
    await keep(tenant, 'ann', other)
    expect(await run(tenant)).toMatchObject(runs)
    await registry.change({ ann: annsPassword, bob: bobsPassword })
    await tenant.owner.ask('DELETE', `${path}/${String(body['id'])}`)
    expect(await run(tenant)).toMatchObject(asksFor())
    await (await tenant.containers.stop(id, { grace_sec: 0 })).operation.success()
    await (await tenant.containers.start(id)).operation.success()
  })
})

test('the examples of docs/private-images.md work as printed', async () => {
  const tenant = await makeTenant()
  const shell = openShell({ API: facts().api_url, TOKEN: tenant.owner.token })
  const blocks = blocksOf(await pageOf('private-images'))
  expect(blocks).toHaveLength(2)
  const here = (block: string | undefined): string =>
    (block ?? '')
      .replaceAll('registry.example.com', registry.address)
      .replaceAll('"shop"', '"ann"')
      .replaceAll('a-token-that-may-pull', annsPassword)
  const said = await shell.paste(here(blocks[0]))
  expect(said).toContain('succeeded')
  expect(said).toContain('"username":"ann"')
  expect(said).not.toContain(annsPassword)
  expect(await shell.paste(here(blocks[1]))).toBe('')
  expect(await RegistryCredential.countDocuments({ tenant_id: tenant.id })).toBe(0)
  await shell.close()
})

test('neither a log nor a record shows a password', async () => {
  for (const name of await readdir(join(layout.state, 'log')))
    expect([name, shown(await readFile(join(layout.state, 'log', name), 'utf8'))]).toEqual([name, false])
  for await (const line of allRecords()) expect(shown(line)).toBe(false)
})
