import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { makeOutbound } from '../../lib/outbound.ts'
import { unsealSecret } from '../../models/secrets.ts'
import { Connector, connectorOf, sealContext } from '../../models/connectors/connectors.ts'
import { deleteConnector } from '../../models/connectors/deletion.ts'
import { secretOf } from '../../models/connectors/secrets.ts'
import { holdConnector, usesConnectors } from '../../models/connectors/uses.ts'
import { transaction } from '../../models/database.ts'
import { AuditEvent } from '../../models/identity/audit.ts'
import { useOutbound } from '../../models/outbound.ts'
import type { Json } from '../support/client.ts'
import { type ConnectorBody, connectorsOf } from '../support/clients/connectors.ts'
import { startModelVendors } from '../support/providers/model-vendors.ts'
import { mistakeAt } from '../support/refusals.ts'
import { outboundAllowed } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Connectors by key, against servers that take keys as the vendors do (test/support/providers/model-vendors.ts).

let vendors: Awaited<ReturnType<typeof startModelVendors>>
let tenant: TestTenant
let connectors: ReturnType<typeof connectorsOf>

beforeAll(async () => {
  useOutbound(makeOutbound({ allowed: outboundAllowed }))
  vendors = await startModelVendors()
  tenant = await makeTenant()
  connectors = connectorsOf(tenant.owner)
})
afterEach(() => vendors.fail(0))
afterAll(() => vendors.close())

const newKey = (): string => `key-${newId()}`

/** Imports a key that the vendor accepts. */
async function make(fields: Json, of = connectors): Promise<ConnectorBody> {
  const api_key = newKey()
  vendors.accept(api_key)
  const { status, body } = await of.import({ api_key, ...fields })
  expect([status, body]).toEqual([201, expect.objectContaining({ status: 'active' })])
  return body as ConnectorBody
}

const own = (path = 'own') => ({ provider: 'openai_compatible', base_url: `${vendors.url}/${path}` })

describe('a key', () => {
  test.each([
    ['anthropic', { 'x-api-key': 'KEY', 'anthropic-version': '2023-06-01' }],
    ['openai', { authorization: 'Bearer KEY' }],
    ['google', { 'x-goog-api-key': 'KEY' }],
    ['mistral', { authorization: 'Bearer KEY' }],
    ['groq', { authorization: 'Bearer KEY' }],
    ['xai', { authorization: 'Bearer KEY' }],
    ['deepseek', { authorization: 'Bearer KEY' }],
    ['openrouter', { authorization: 'Bearer KEY' }],
  ])('of %s is checked in its header before it is kept, and never shown', async (provider, headers) => {
    const mine = await makeTenant()
    const its = connectorsOf(mine.owner)
    const api_key = newKey()
    const refused = await its.import({ provider, api_key })
    expect(refused).toMatchObject({ status: 422, body: { code: 'credential_refused' } })
    expect(await its.list()).toEqual([])

    vendors.accept(api_key)
    const { status, body } = await its.import({ provider, api_key })
    const hint = api_key.slice(-4)
    const shown = {
      provider,
      kind: 'api_key',
      name: provider,
      status: 'active',
      secret_hint: hint,
      version: 1,
    }
    expect([status, body]).toEqual([201, expect.objectContaining({ ...shown, is_default: true })])
    const id = String(body['id'])
    expect(JSON.stringify([refused.body, body, await its.get(id), await its.list()])).not.toContain(api_key)
    const stored = await Connector.findOne({ _id: id, tenant_id: mine.id }).lean()
    expect(JSON.stringify(stored)).not.toContain(api_key)

    const credential = await secretOf(mine.id, id)
    const wanted = JSON.parse(JSON.stringify(headers).replace('KEY', api_key)) as Json
    expect(credential).toMatchObject({ provider, kind: 'api_key', headers: wanted, version: 1 })
    expect(credential.base_url).toBe(`${vendors.url}/${provider}`)
    expect((await its.get(id))['last_used_at']).not.toBeNull()
  })

  test('of Azure OpenAI is asked for by its version', async () => {
    await make({ provider: 'azure_openai', base_url: `${vendors.url}/azure`, api_version: '2025-01-01' })
    expect(vendors.paths.at(-1)).toBe('/azure/openai/models?api-version=2025-01-01')
  })

  test('of an OpenAI-compatible API goes in the header that the tenant names, or is none', async () => {
    const { id } = await make({ ...own('custom'), header: 'x-custom-key' })
    expect(Object.keys((await secretOf(tenant.id, id)).headers)).toEqual(['x-custom-key'])
    const { status, body } = await connectors.import(own('open'))
    expect([status, body]).toEqual([
      201,
      expect.objectContaining({ kind: 'none', status: 'active', secret_hint: null }),
    ])
    expect((await secretOf(tenant.id, String(body['id']))).headers).toEqual({})
  })

  test('is kept unchecked while its provider does not answer, and checked later', async () => {
    vendors.fail(500)
    const api_key = newKey()
    const { status, body } = await connectors.import({ provider: 'groq', api_key })
    expect([status, body]).toEqual([
      201,
      expect.objectContaining({ status: 'unchecked', status_reason: 'Groq answers 500', checked_at: null }),
    ])
    const id = String(body['id'])
    expect(await connectors.check(id)).toMatchObject({
      status: 503,
      body: { code: 'provider_unavailable' },
    })
    vendors.fail(0)
    vendors.accept(api_key)
    expect(await connectors.check(id)).toMatchObject({ status: 200, body: { status: 'active' } })

    vendors.forget(api_key)
    expect(await connectors.check(id)).toMatchObject({ status: 200, body: { status: 'invalid' } })
    expect(await connectors.activity(id)).toMatchObject([{ kind: 'invalid' }])
    await expect(secretOf(tenant.id, id)).rejects.toMatchObject({ code: 'connector_unusable' })
    vendors.accept(api_key)
    expect(await connectors.check(id)).toMatchObject({ status: 200, body: { status: 'active' } })
  })

  test('is replaced in place: id, default and name stay; another place needs a confirmation', async () => {
    const first = await make(own('first'))
    await make(own('second'))
    const api_key = newKey()
    const put = (fields: Json) => connectors.import({ ...own('first'), connector_id: first.id, ...fields })
    expect(await put({ api_key })).toMatchObject({ status: 422, body: { code: 'credential_refused' } })
    vendors.accept(api_key)
    expect(await put({ api_key, base_url: `${vendors.url}/other` })).toMatchObject({
      status: 409,
      body: { code: 'account_change_unconfirmed' },
    })
    expect(await put({ api_key, provider: 'openai', base_url: null })).toMatchObject(
      mistakeAt('/connector_id'),
    )
    expect(await connectors.get(first.id)).toMatchObject({ version: 1, base_url: first.base_url })

    const { id, name, is_default } = first
    const kept = { id, name, is_default, version: 2 }
    expect(await put({ api_key })).toMatchObject({ status: 200, body: { ...kept, base_url: first.base_url } })
    expect((await secretOf(tenant.id, id)).headers).toEqual({ authorization: `Bearer ${api_key}` })
    const moved = await put({ api_key, base_url: `${vendors.url}/other`, confirm_account_change: true })
    expect(moved).toMatchObject({
      status: 200,
      body: { ...kept, version: 3, base_url: `${vendors.url}/other` },
    })
  })

  test('opens in its own tenant, connector and version only', async () => {
    const { id } = await make(own())
    const connector = await connectorOf({ tenant_id: tenant.id }, id)
    const open = (of: Json) => unsealSecret(connector.secret_sealed, sealContext({ ...connector, ...of }))
    await expect(open({})).resolves.toMatchObject({ token: expect.stringMatching(/^key-/) })
    for (const other of [{ tenant_id: newId() }, { _id: newId() }, { version: 2 }])
      await expect(open(other)).rejects.toThrow()
  })

  test.each([
    ['of a provider without keys', { provider: 'mcp', base_url: 'https://mcp.example' }, '/provider'],
    ['that is missing', { provider: 'openai', api_key: null }, '/api_key'],
    ['with a line break', { provider: 'openai', api_key: 'a\r\nhost: b' }, '/api_key'],
    ['without its place', { provider: 'openai_compatible' }, '/base_url'],
    [
      'at another place than its provider’s',
      { provider: 'openai', base_url: 'https://a.example' },
      '/base_url',
    ],
    ['in the header of HTTP itself', { provider: 'openai_compatible', header: 'host' }, '/header'],
    ['in a header that another provider has', { provider: 'openai', header: 'x-key' }, '/header'],
    ['of a version that the provider has not', { provider: 'openai', api_version: '1' }, '/api_version'],
  ])('%s is refused', async (_, fields, pointer) => {
    const before = vendors.paths.length
    expect(await connectors.import({ api_key: newKey(), ...fields })).toMatchObject(mistakeAt(pointer))
    expect(vendors.paths.length).toBe(before)
  })

  test('of a tenant that has as many connectors as it may have is refused', async () => {
    const small = connectorsOf((await makeTenant({ max_connectors: 1 })).owner)
    const { id } = await make(own(), small)
    const api_key = newKey()
    vendors.accept(api_key)
    expect(await small.import({ ...own(), api_key })).toMatchObject({
      status: 409,
      body: { code: 'quota_exceeded', limit: 'max_connectors', allowed: 1 },
    })
    expect(await small.import({ ...own(), api_key, connector_id: id })).toMatchObject({ status: 200 })
  })
})

const given = (provider: string) => ({ provider, api_key: newKey() })

describe('a base URL', () => {
  const metadata = 'https://169.254.169.254'
  const takers = [
    [
      'openai_compatible',
      (base_url: string) => connectors.import({ ...given('openai_compatible'), base_url }),
    ],
    ['gitea', (base_url: string) => connectors.import({ ...given('gitea'), base_url })],
    ['gitlab', (base_url: string) => connectors.import({ ...given('gitlab'), base_url })],
    ['azure_openai', (base_url: string) => connectors.import({ ...given('azure_openai'), base_url })],
    ['mcp', (base_url: string) => connectors.startOauth({ provider: 'mcp', base_url })],
  ] as const

  test.each(takers)('of %s must be a public address', async (_, send) => {
    for (const url of [
      metadata,
      'https://127.0.0.1:1',
      'https://[::1]/v1',
      'https://[::ffff:10.0.0.1]/',
      'https://0x7f000001/',
      'https://10.1.2.3/',
      'https://168.63.129.16/',
    ])
      expect(await send(url)).toMatchObject(mistakeAt('/base_url'))
  })

  test.each(takers)('of %s must be https, without user, query and fragment', async (_, send) => {
    for (const url of [
      'http://api.example.com',
      'ftp://api.example.com',
      'https://user:password@api.example.com',
      'https://api.example.com/?key=1',
      'https://api.example.com/#x',
      'nowhere',
    ])
      expect(await send(url)).toMatchObject(mistakeAt('/base_url'))
  })

  test.each(takers)('of %s may not be a name that leads to a private address', async (_, send) => {
    expect(await send('https://localhost:1')).toMatchObject({
      status: 422,
      body: { code: 'address_not_allowed' },
    })
  })
})

describe('the default of a provider', () => {
  let its: ReturnType<typeof connectorsOf>
  const three: string[] = []
  beforeAll(async () => {
    its = connectorsOf((await makeTenant()).owner)
    for (let count = 0; count < 3; count++) three.push((await make({ provider: 'openai' }, its)).id)
    await make({ provider: 'groq' }, its)
  })

  const defaults = async (): Promise<string[]> =>
    (await its.list('?provider=openai&is_default=true')).map(({ id }) => id)

  test('is the first one, and moves', async () => {
    const [first, second] = three
    expect(await defaults()).toEqual([first])
    expect((await its.list('?order=asc')).map(({ name }) => name)).toEqual([
      'openai',
      'openai-2',
      'openai-3',
      'groq',
    ])
    expect(await its.makeDefault(second ?? '')).toMatchObject({ status: 200, body: { is_default: true } })
    expect(await defaults()).toEqual([second])
    expect(await its.list('?provider=groq&is_default=true')).toHaveLength(1)
  })

  test('is one after twenty changes at once', async () => {
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => its.makeDefault(three[i % 3] ?? '')),
    )
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
    expect(await defaults()).toHaveLength(1)
  })

  test('is the oldest one that can be used when it is deleted', async () => {
    const [first = '', second = '', third = ''] = three
    await its.makeDefault(first)
    const tenant_id = String((await its.get(first))['tenant_id'])
    await Connector.updateOne({ _id: second, tenant_id }, { $set: { status: 'invalid' } })
    expect(await its.delete(first)).toMatchObject({
      status: 200,
      body: { id: first, revoked: false, reason: expect.stringContaining('Revoke the key at OpenAI') },
    })
    expect(await defaults()).toEqual([third])
  })

  test('is the one that stays, when the default and the next one are deleted at once', async () => {
    const other = connectorsOf((await makeTenant()).owner)
    for (let times = 0; times < 5; times++) {
      const ids: string[] = []
      for (let count = 0; count < 4; count++) ids.push((await make({ provider: 'openai' }, other)).id)
      const [first = '', second = '', third = '', last = ''] = ids
      const answers = await Promise.all([
        other.delete(first),
        other.delete(second),
        other.makeDefault(second),
        other.delete(third),
      ])
      // A connector that is being deleted may be gone when it is made the default.
      const [, , { status: made }, ...rest] = answers
      expect([200, 404]).toContain(made)
      expect([answers[0], answers[1], ...rest].map(({ status }) => status)).toEqual([200, 200, 200])
      expect(await other.list('?provider=openai')).toMatchObject([{ id: last, is_default: true }])
      await other.delete(last)
    }
  })
})

describe('a connector', () => {
  test('that is used is deleted by force only, and says by what it is used', async () => {
    const { id } = await make(own())
    const use = { id: newId(), name: 'search' }
    usesConnectors('test', ({ _id }) => Promise.resolve(_id === id ? [use] : []))
    const connector = await connectorOf({ tenant_id: tenant.id }, id)
    await expect(deleteConnector(connector, { force: false })).rejects.toMatchObject({
      status: 409,
      code: 'connector_in_use',
      extensions: { uses: [{ kind: 'test', ...use }], count: 1 },
    })
    expect(await connectors.get(id)).toMatchObject({ status: 'active' })
    await expect(deleteConnector(connector, { force: true })).resolves.toMatchObject({ revoked: false })
    expect(await tenant.owner.ask('GET', `/api/v1/connectors/${id}`)).toMatchObject({ status: 404 })
  })

  test('whose deletion was interrupted is used by nothing, and deleted again', async () => {
    const { id } = await make(own())
    const hold = () => transaction(() => holdConnector(tenant.id, id))
    expect(await hold()).toMatchObject({ _id: id })
    await Connector.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { status: 'revoked' } })
    await expect(hold()).rejects.toMatchObject({ status: 404 })
    await expect(secretOf(tenant.id, id)).rejects.toMatchObject({
      code: 'connector_unusable',
      extensions: { connector_id: id, state: 'revoked' },
    })
    const api_key = newKey()
    vendors.accept(api_key)
    expect(await connectors.import({ ...own(), api_key, connector_id: id })).toMatchObject({ status: 404 })
    expect(await connectors.delete(id)).toMatchObject({ status: 200 })
  })

  test('is renamed, to a name that is free', async () => {
    const [one, two] = [await make(own()), await make(own())]
    expect(await connectors.rename(one.id, 'renamed')).toMatchObject({
      status: 200,
      body: { name: 'renamed' },
    })
    expect(await connectors.rename(two.id, 'renamed')).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    })
    const api_key = newKey()
    vendors.accept(api_key)
    expect(await connectors.import({ ...own(), api_key, name: 'renamed' })).toMatchObject({ status: 409 })
  })

  test('is made, replaced and deleted by those who may, and audited', async () => {
    const viewer = connectorsOf(await tenant.user('viewer'))
    const { id } = await make(own())
    expect(await viewer.get(id)).toMatchObject({ id })
    expect(await viewer.import({ ...own(), api_key: newKey() })).toMatchObject({ status: 403 })
    const name = 'maker'
    await tenant.owner.ask('POST', '/api/v1/roles', { name, permissions: ['connectors:create'] })
    const maker = connectorsOf(await tenant.user(name))
    const replacing = await maker.import({ ...own(), api_key: newKey(), connector_id: id })
    expect(replacing).toMatchObject({ status: 403, body: { permission: 'connectors:update' } })
    await connectors.delete(id)
    const events = await AuditEvent.find({ tenant_id: tenant.id, resource_id: id }).sort({ time: 1 }).lean()
    expect(events.map(({ action, resource_kind }) => [action, resource_kind])).toEqual([
      ['POST /api/v1/connectors/import', 'connector'],
      ['DELETE /api/v1/connectors/{id}', 'connector'],
    ])
  })

  test('can be made for what the platform offers', async () => {
    const { items } = await tenant.owner.get<{ items: Json[] }>('/api/v1/connectors/providers')
    const kindsOf = (provider: string) => items.find((item) => item['provider'] === provider)?.['kinds']
    expect(items).toHaveLength(14)
    expect([kindsOf('github'), kindsOf('gitea'), kindsOf('anthropic'), kindsOf('mcp')]).toEqual([
      ['device', 'oauth', 'api_key'],
      ['api_key'], // the operator has no client there
      ['api_key'],
      ['oauth'],
    ])
    expect(await connectors.startOauth({ provider: 'gitea' })).toMatchObject({
      status: 409,
      body: { code: 'login_not_offered' },
    })
    expect(await connectors.startDevice({ provider: 'openai' })).toMatchObject({ status: 409 })
  })
})
