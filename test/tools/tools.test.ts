import { beforeAll, describe, expect, test } from '@jest/globals'
import { Tool } from '../../models/tools/tools.ts'
import type { Json } from '../support/client.ts'
import {
  builtinTool,
  mcpTool as mcp,
  newToolSecret as newSecret,
  toolsOf,
  toolsPath,
} from '../support/clients/tools.ts'
import { mistakeAt } from '../support/refusals.ts'
import { plantAll } from '../support/planted.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
let tools: ReturnType<typeof toolsOf>

beforeAll(async () => {
  tenant = await makeTenant()
  tools = toolsOf(tenant.owner)
})

const bearer = (secret: string): Json => ({ auth: { type: 'bearer' }, secret })

const whole: Record<string, Json> = {
  mcp: { kind: 'mcp', transport: 'streamable_http', url: 'https://mcp.example/mcp' },
  stdio: { kind: 'mcp', transport: 'stdio', command: 'npx', args: ['-y', 'server'] },
  http: {
    kind: 'http',
    method: 'GET',
    url: 'https://api.example/users/{id}?q={q}',
    headers: { Accept: 'application/json' },
    input_schema: {
      type: 'object',
      properties: { id: { type: 'string' }, q: { $ref: '#/$defs/q' } },
      $defs: { q: { type: 'string' } },
    },
  },
  openapi: { kind: 'openapi', url: 'https://api.example/openapi.json' },
  document: {
    kind: 'openapi',
    document: { openapi: '3.1.0', servers: [{ url: 'https://api.example' }], paths: { '/a.b': {} } },
  },
  builtin: builtinTool,
}

describe('a tool', () => {
  test.each(Object.entries(whole))('of %s is made, shown as it was given, and deleted', async (_, given) => {
    const made = await tools.make({ ...given, description: 'what it does', tags: { team: 'a' } })
    expect(made).toMatchObject({ ...given, status: 'unchecked', last_probe: null, tags: { team: 'a' } })
    expect(await tools.get(made.id)).toEqual(made)
    const { items } = await tools.list(`?name=${made.name}&kind=${String(given['kind'])}`)
    expect(items.map(({ id }) => id)).toEqual([made.id])
    expect(items[0]).not.toHaveProperty('document')
    expect(await tools.delete(made.id)).toMatchObject({ status: 204 })
    expect(await tools.delete(made.id)).toMatchObject({ status: 404 })
  })

  test('has the fields of its kind, and no others', async () => {
    const { mcp: server = {}, stdio = {}, http = {}, openapi = {}, document = {} } = whole
    for (const [given, pointer] of [
      [{ ...server, command: 'npx' }, '/command'],
      [{ ...stdio, url: 'https://a.example' }, '/url'],
      [{ ...stdio, auth: { type: 'none' } }, '/auth'],
      [{ ...stdio, command: 'sh -c id' }, '/command'],
      [{ ...http, transport: 'auto' }, '/transport'],
      [{ ...http, method: 'TRACE' }, '/method'],
      [{ ...http, url: 'https://api.example/{unknown}' }, '/url'],
      [{ ...http, url: 'https://{id}.example/' }, '/url'],
      [{ ...http, input_schema: { type: 'object', properties: 1 } }, '/input_schema'],
      [{ ...openapi, ...document }, ''],
      [{ kind: 'openapi' }, ''],
      [{ kind: 'openapi', document: { swagger: '2.0' } }, '/document'],
      [{ kind: 'other' }, '/kind'],
      [{ ...server, url: 'ftp://a.example' }, '/url'],
      [{ ...server, url: 'http://169.254.169.254/' }, '/url'],
      [{ ...server, auth: { type: 'bearer', name: 'x' } }, '/auth/name'],
      [{ ...server, auth: { type: 'oauth' } }, '/auth/connector_id'],
    ] as const)
      expect([given, await tools.create(given)]).toMatchObject([given, mistakeAt(pointer)])
  })

  test('has a name of its own', async () => {
    const { name } = await tools.make(builtinTool)
    expect(await tools.create({ ...builtinTool, name })).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    })
  })

  test('counts against the tenant’s limit, in parallel too', async () => {
    const { owner } = await makeTenant({ max_tools: 2 })
    const answers = await Promise.all(Array.from({ length: 5 }, () => toolsOf(owner).create(builtinTool)))
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(2)
    expect(answers.find(({ status }) => status === 409)?.body).toMatchObject({
      code: 'quota_exceeded',
      limit: 'max_tools',
    })
  })

  test('is another tenant’s like one that is not there', async () => {
    const { id } = await tools.make(mcp('https://mcp.example/'))
    const stranger = toolsOf((await makeTenant()).owner)
    for (const answer of [
      await stranger.change(id, {}),
      await stranger.delete(id),
      await stranger.probe(id),
      await stranger.test(id),
    ])
      expect(answer).toMatchObject({ status: 404, body: { code: 'not_found' } })
    expect((await stranger.list()).items).toEqual([])
  })

  test('changes in part, and is unchecked after a change of what a probe sees', async () => {
    const { id, updated_at } = await tools.make(whole['http'] ?? {})
    await Tool.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { status: 'ok' } })
    expect(await tools.change(id, { description: 'other' })).toMatchObject({
      status: 200,
      body: { ...whole['http'], description: 'other', status: 'ok' },
    })
    const { body } = await tools.change(id, { url: 'https://api.example/all', method: 'POST' })
    expect(body).toMatchObject({ url: 'https://api.example/all', method: 'POST', status: 'unchecked' })
    expect(String(body['updated_at']) > String(updated_at)).toBe(true)
    expect(await tools.change(id, { url: 'https://api.example/{none}' })).toMatchObject(mistakeAt('/url'))
    expect(await tools.change(id, { kind: 'builtin' })).toMatchObject(mistakeAt('/kind'))
    expect(await tools.change(id, { command: 'npx' })).toMatchObject(mistakeAt('/command'))

    const server = await tools.make(whole['mcp'] ?? {})
    const { transport, command, url } = (
      await tools.change(server.id, { transport: 'stdio', command: 'npx' })
    ).body
    expect({ transport, command, url }).toEqual({ transport: 'stdio', command: 'npx', url: null })
    const api = await tools.make(whole['openapi'] ?? {})
    const { document } = whole['document'] ?? {}
    expect((await tools.change(api.id, { document })).body).toMatchObject({ document, url: null })
  })

  test('takes changes that come at once one after another', async () => {
    const { id } = await tools.make(mcp('https://mcp.example/0', bearer(newSecret())))
    const answers = await Promise.all(
      ['1', '2', '3'].map((path) => tools.change(id, { url: `https://mcp.example/${path}` })),
    )
    const done = answers.filter(({ status }) => status === 200)
    expect(done.length).toBeGreaterThan(0)
    const { version } = (await Tool.findOne({ _id: id, tenant_id: tenant.id }).lean()) ?? {}
    expect(version).toBe(1 + done.length)
  })
})

describe('the secret of a tool', () => {
  test('is stored sealed and never shown', async () => {
    const secret = newSecret()
    const env = { API_KEY: newSecret() }
    const made = await tools.make(mcp('https://mcp.example/', bearer(secret)))
    expect(made.secret_hint).toBe(secret.slice(-4))
    plantAll([env.API_KEY])
    const command = await tools.make({ ...whole['stdio'], env })
    expect(command).toMatchObject({ env_names: ['API_KEY'], secret_hint: null })
    const shown = [made, command, await tools.get(made.id), await tools.list(), await tools.test(made.id)]
    const kept = await Tool.find({ tenant_id: tenant.id }).lean()
    for (const one of [secret, env.API_KEY]) expect(JSON.stringify([shown, kept])).not.toContain(one)
  })

  test('is refused in URLs, headers and arguments, without being repeated', async () => {
    const secret = newSecret()
    for (const [given, pointer] of [
      [mcp(`https://user:${secret}@mcp.example/`), '/url'],
      [mcp(`https://mcp.example/?api_key=${secret}`), '/url'],
      [{ ...whole['http'], headers: { Authorization: `Bearer ${secret}` } }, '/headers/Authorization'],
      [{ ...whole['stdio'], args: [`--token=${secret}`] }, '/args'],
    ] as const) {
      const answer = await tools.create(given)
      expect([pointer, answer]).toMatchObject([pointer, mistakeAt(pointer)])
      expect(JSON.stringify(answer.body)).not.toContain(secret)
    }
  })

  test('is there exactly if the auth is by it', async () => {
    const url = 'https://mcp.example/'
    expect(await tools.create(mcp(url, { auth: { type: 'basic' } }))).toMatchObject(mistakeAt('/secret'))
    expect(await tools.create(mcp(url, { secret: newSecret() }))).toMatchObject(mistakeAt('/secret'))
    expect(await tools.create(mcp('http://mcp.example/', bearer(newSecret())))).toMatchObject(
      mistakeAt('/url'),
    )
    const { id } = await tools.make(mcp(url, bearer(newSecret())))
    expect((await tools.change(id, { auth: { type: 'none' } })).body).toMatchObject({ secret_hint: null })
    expect(await Tool.findOne({ _id: id, tenant_id: tenant.id }).lean()).toMatchObject({ secret_sealed: '-' })
  })

  test('does not go to another origin or command by a change of somebody who does not know it', async () => {
    const { id } = await tools.make(mcp('https://mcp.example/', bearer(newSecret())))
    expect(await tools.change(id, { url: 'https://mcp.example/other' })).toMatchObject({ status: 200 })
    const moved = { url: 'https://thief.example/' }
    expect(await tools.change(id, moved)).toMatchObject(mistakeAt('/secret'))
    expect(await tools.change(id, { auth: { type: 'basic' } })).toMatchObject(mistakeAt('/secret'))
    expect(await tools.change(id, { ...moved, secret: newSecret() })).toMatchObject({ status: 200 })

    const command = await tools.make({ ...whole['stdio'], env: { API_KEY: newSecret() } })
    expect(await tools.change(command.id, { args: ['thief'] })).toMatchObject(mistakeAt('/env'))
    expect(await tools.change(command.id, { args: ['other'], env: {} })).toMatchObject({ status: 200 })
  })

  test('can be stored, by the key that is named', async () => {
    const { status, body } = await tenant.owner.ask('GET', `${toolsPath}/credential-storage`)
    expect([status, body]).toEqual([200, { configured: true, key_id: expect.any(String) }])
    const { id } = await tools.make(mcp('https://mcp.example/', bearer(newSecret())))
    const kept = await Tool.findOne({ _id: id, tenant_id: tenant.id }).lean()
    expect(kept?.secret_sealed.startsWith(`${String(body['key_id'])}.`)).toBe(true)
  })
})
