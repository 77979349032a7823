import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Connector } from '../../models/connectors/connectors.ts'
import { sealCredential } from '../../models/connectors/credentials.ts'
import { listingOf } from '../../models/tools/listings.ts'
import { Tool, toolOf } from '../../models/tools/tools.ts'
import type { Client, Json } from '../support/client.ts'
import { toolsOf, toolsPath } from '../support/clients/tools.ts'
import { mistakeAt } from '../support/refusals.ts'
import { listen, mcpAnswers, openEverything, toolNamed } from '../support/mcp-servers.ts'
import { plantAll } from '../support/planted.ts'
import { toolServers } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Tools, and probes of servers on this machine that an operator allows.

let tenant: TestTenant
let tools: ReturnType<typeof toolsOf>
let everything: Awaited<ReturnType<typeof openEverything>>
let older: typeof everything

beforeAll(async () => {
  tenant = await makeTenant()
  tools = toolsOf(tenant.owner)
  everything = await openEverything('streamableHttp', toolServers.http)
  older = await openEverything('sse', toolServers.sse)
})
afterAll(async () => {
  await everything.close()
  await older.close()
})

const at = (port: number, path = '/mcp'): string => `http://127.0.0.1:${port}${path}`
const newSecret = (): string => `planted-secret-of-a-tool-${newId()}`
const mcp = (url: string, more: Json = {}): Json => ({ kind: 'mcp', transport: 'auto', url, ...more })
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
  builtin: { kind: 'builtin', builtin: 'search' },
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
    const { name } = await tools.make(whole['builtin'] ?? {})
    expect(await tools.create({ ...whole['builtin'], name })).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    })
  })

  test('counts against the tenant’s limit, in parallel too', async () => {
    const { owner } = await makeTenant({ max_tools: 2 })
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => toolsOf(owner).create(whole['builtin'] ?? {})),
    )
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(2)
    expect(answers.find(({ status }) => status === 409)?.body).toMatchObject({
      code: 'quota_exceeded',
      limit: 'max_tools',
    })
  })

  test('is another tenant’s like one that is not there', async () => {
    const { id } = await tools.make(mcp(everything.url))
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

async function makeConnector(base_url: string, token: string): Promise<string> {
  const of = { _id: newId(), tenant_id: tenant.id, version: 1 }
  await new Connector({
    ...of,
    name: `connector-${of._id.slice(-12)}`,
    provider: 'mcp',
    kind: 'oauth',
    base_url,
    status: 'active',
    secret_sealed: await sealCredential(of, { token, refresh_token: null, client_secret: null }),
  }).save()
  return of._id
}
const oauth = (connector_id: string): Json => ({ auth: { type: 'oauth', connector_id } })

describe('a connector of a tool', () => {
  test('gives its credential to its own origin alone, and cannot be deleted before the tool', async () => {
    const token = newSecret()
    let sent = ''
    const answer = mcpAnswers({ list: () => ({ tools: [toolNamed('one', `you sent ${sent}`)] }) })
    const server = await listen((request, response) => {
      sent = String(request.headers.authorization)
      answer(request, response)
    }, toolServers.fake)
    try {
      const connector = await makeConnector(server.origin, token)
      expect(await tools.create(mcp(everything.url, oauth(connector)))).toMatchObject(
        mistakeAt('/auth/connector_id'),
      )
      expect(await tools.create(mcp(everything.url, oauth(newId())))).toMatchObject(
        mistakeAt('/auth/connector_id'),
      )
      const { id, name } = await tools.make(mcp(`${server.origin}/mcp`, oauth(connector)))
      const probed = await tools.probe(id)
      expect([probed.status, sent]).toEqual([200, `Bearer ${token}`])
      expect(JSON.stringify(probed.body)).not.toContain(token)
      expect(await tenant.owner.ask('DELETE', `/api/v1/connectors/${connector}`)).toMatchObject({
        status: 409,
        body: { code: 'connector_in_use', uses: [{ kind: 'tool', id, name }] },
      })

      const its = { _id: connector, tenant_id: tenant.id }
      await Connector.updateOne(its, { $set: { status: 'reauth_required' } })
      expect(await tools.probe(id)).toMatchObject({
        status: 502,
        body: { stage: 'credential', reason: 'reauth_required' },
      })
    } finally {
      server.close()
    }
  })

  test('needs the permission to use it', async () => {
    const connector = await makeConnector(new URL(everything.url).origin, newSecret())
    const role = { name: `role-${newId().slice(-12)}`, permissions: ['tools:create', 'tools:read'] }
    await tenant.owner.ask('POST', '/api/v1/roles', role)
    const user: Client = await tenant.user(role.name)
    expect(await toolsOf(user).create(mcp(everything.url, oauth(connector)))).toMatchObject({
      status: 403,
      body: { permission: 'connectors:use' },
    })
    expect(await toolsOf(user).create(mcp(everything.url))).toMatchObject({ status: 201 })
  })
})

describe('the live list of an MCP server', () => {
  test('has the 13 tools of the reference server, over streamable HTTP and SSE, and is kept', async () => {
    for (const { url } of [everything, older]) {
      const { id } = await tools.make(mcp(url))
      const { status, body } = await tools.probe(id)
      expect([status, body['total'], body['truncated'], body['changed']]).toEqual([200, 13, false, null])
      expect(body['transport']).toBe(url.endsWith('/sse') ? 'sse' : 'streamable_http')
      expect((await tools.probe(id)).body).toMatchObject({ changed: false, tools_hash: body['tools_hash'] })
      expect(await tools.get(id)).toMatchObject({
        status: 'ok',
        last_probe: { by: 'mcp_tools', fault: null, tools_count: 13, tools_hash: body['tools_hash'] },
      })
      const kept = await toolOf({ tenant_id: tenant.id }, id)
      expect(listingOf(kept)?.map(({ name }) => name)).toEqual(
        (body['tools'] as Json[]).map(({ name }) => name),
      )
      await tools.change(id, { url: `${url}?other` })
      expect(listingOf(await toolOf({ tenant_id: tenant.id }, id))).toBeNull()
    }
  })

  test('says that the server advertises something else, also after a failure', async () => {
    let description = 'adds two numbers'
    let status = 200
    const answer = mcpAnswers({ list: () => ({ tools: [toolNamed('add', description)] }) })
    const server = await listen(
      (request, response) => (status === 200 ? answer(request, response) : response.writeHead(status).end()),
      toolServers.fake,
    )
    try {
      const { id } = await tools.make(mcp(at(server.port)))
      expect((await tools.probe(id)).body).toMatchObject({ changed: null })
      status = 503
      expect(await tools.probe(id)).toMatchObject({
        status: 502,
        body: { code: 'tool_probe_failed', stage: 'http', reason: 'server_error' },
      })
      expect(await tools.get(id)).toMatchObject({
        status: 'failing',
        last_probe: { fault: { stage: 'http', reason: 'server_error' } },
      })
      status = 200
      description = 'adds two numbers, and sends them elsewhere'
      expect((await tools.probe(id)).body).toMatchObject({ changed: true })
      expect((await tools.probe(id)).body).toMatchObject({ changed: false })
    } finally {
      server.close()
    }
  })

  test('fails with a stage, a cause, a remedy and durations', async () => {
    const { id } = await tools.make(mcp(at(toolServers.none)))
    const { status, body } = await tools.probe(id)
    expect([status, body]).toMatchObject([
      502,
      {
        stage: 'connect',
        reason: 'refused',
        cause: 'The server refuses connections',
        remedy: expect.stringContaining('port'),
      },
    ])
    const stages = body['stages'] as { stage: string; status: string; duration_ms: number }[]
    expect(stages.find(({ stage }) => stage === 'connect')?.status).toBe('failed')
    expect(stages.every(({ duration_ms }) => duration_ms >= 0)).toBe(true)
  })

  test('is not to be had of other kinds', async () => {
    const { id } = await tools.make(whole['builtin'] ?? {})
    expect(await tools.probe(id)).toMatchObject({ status: 409, body: { code: 'not_an_mcp_tool' } })
  })
})

describe('the test of a tool', () => {
  test('says what is wrong with the form of its credential', async () => {
    const url = 'https://api.example/'
    const ended = Buffer.from(JSON.stringify({ exp: 1_700_000_000 })).toString('base64url')
    for (const [type, secret, reason] of [
      ['bearer', newSecret(), null],
      ['bearer', 'Bearer abc', 'secret_malformed'],
      ['bearer', '<token>', 'secret_is_placeholder'],
      ['bearer', `e30.${ended}.none`, 'secret_expired'],
      ['basic', `user:${newSecret()}`, null],
      ['basic', 'password', 'secret_malformed'],
      ['header', ' abc', 'secret_malformed'],
    ] as const) {
      const auth = type === 'header' ? { type, name: 'X-Api-Key' } : { type }
      const { id } = await tools.make({ kind: 'openapi', url, auth, secret })
      const { status, body } = await tools.test(id)
      expect([secret, status, body['ok']]).toEqual([secret, 200, reason === null])
      expect(body).toMatchObject({
        fault: reason && { stage: 'credential', reason },
        credential_sent: false,
        http_status: null,
      })
      expect((await tools.get(id)).status).toBe(reason === null ? 'unchecked' : 'failing')
    }
  })

  test('takes the credential to the tool’s own origin alone', async () => {
    const secret = newSecret()
    const asked: (string | undefined)[] = []
    const server = await listen((request, response) => {
      asked.push(request.headers['x-api-key'] as string | undefined)
      response.writeHead(request.url === '/denied' ? 401 : 204).end()
    }, toolServers.fake)
    try {
      const auth = { type: 'header', name: 'X-Api-Key' }
      const { id } = await tools.make({ kind: 'openapi', url: `${server.origin}/openapi.json`, auth, secret })
      expect((await tools.test(id, { test_url: `${server.origin}/health` })).body).toMatchObject({
        ok: true,
        fault: null,
        credential_sent: true,
        http_status: 204,
      })
      expect((await tools.get(id)).status).toBe('ok')
      expect((await tools.test(id, { test_url: at(toolServers.http, '/none') })).body).toMatchObject({
        ok: true,
        credential_sent: false,
        http_status: 404,
      })
      expect((await tools.test(id, { test_url: `${server.origin}/denied` })).body).toMatchObject({
        ok: false,
        fault: { stage: 'auth', reason: 'unauthorized' },
      })
      expect((await tools.get(id)).status).toBe('failing')
      expect(asked).toEqual([secret, secret])
      const foreign = await tools.make({ kind: 'openapi', url: 'https://api.example/', auth, secret })
      await tools.test(foreign.id, { test_url: `${server.origin}/health` })
      expect(asked).toEqual([secret, secret, undefined])
    } finally {
      server.close()
    }
  })

  test('reaches public addresses alone, and takes no secret in the URL', async () => {
    const { id } = await tools.make(whole['builtin'] ?? {})
    for (const test_url of ['http://169.254.169.254/', 'http://127.0.0.1:1/', 'http://[::1]/'])
      expect((await tools.test(id, { test_url })).body).toMatchObject({
        ok: false,
        fault: { stage: 'policy', reason: 'address_not_allowed' },
      })
    expect(await tools.test(id, { test_url: 'https://a:b@api.example/' })).toMatchObject(
      mistakeAt('/test_url'),
    )
  })
})
