import { gunzipSync } from 'node:zlib'
import { request } from 'node:http'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { isSocket, isStream, successOf } from '../../api/operation.ts'
import { newId } from '../../lib/ids.ts'
import { type Answer, ask, type Client } from '../support/client.ts'
import { declared } from '../support/declared.ts'
import { facts } from '../support/stack.ts'
import { makeOperator, makeTenant, type TestTenant } from '../support/tenants.ts'

// What HTTP itself promises: methods, caches, and that no answer with a secret or a person is kept.

let tenant: TestTenant
let owner: Client
beforeAll(async () => {
  tenant = await makeTenant()
  owner = tenant.owner
})

const path = '/api/v1/containers'
const paths = Map.groupBy(declared, (operation) => operation.path)
const urlOf = (of: string): string => of.replaceAll(/\{\w+\}/g, newId())
/** Whether an address is of a path: `/connectors/{id}` takes `/connectors/import` too. */
const matches = (of: string, url: string): boolean =>
  new RegExp(`^${of.replaceAll(/\{\w+\}/g, '[^/]+').replaceAll('.', String.raw`\.`)}$`).test(url)
const kept = (answer: Answer): string | null => answer.headers.get('cache-control')

describe('methods', () => {
  test('OPTIONS names those of a path, and the others get 405 with the same', async () => {
    const wrong: unknown[] = []
    for (const [of, operations] of paths) {
      const own = operations.map(({ method }) => method as string)
      const lasts = operations.some(
        (one) => one.method === 'GET' && (isStream(successOf(one).body) || isSocket(successOf(one).body)),
      )
      const all = [...own, ...(own.includes('GET') && !lasts ? ['HEAD'] : []), 'OPTIONS'].toSorted()
      const url = urlOf(of)
      const taken = declared
        .filter(({ path: other }) => matches(other, url))
        .map(({ method }) => method as string)
      const other = ['PUT', 'PATCH', 'DELETE', 'POST'].find((method) => !taken.includes(method)) ?? 'GET'
      const told = await ask('OPTIONS', url)
      const refused = await ask(other, url)
      const allow = [told, refused].map(({ headers }) => (headers.get('allow') ?? '').split(', ').toSorted())
      const statuses = [told.status, refused.status]
      if (
        JSON.stringify([statuses, allow]) !==
        JSON.stringify([
          [204, 405],
          [all, all],
        ])
      )
        wrong.push([of, statuses, allow])
    }
    expect(wrong).toEqual([])
  })

  test('HEAD is GET without its body, and refused where an answer has no end', async () => {
    const authorization = `Bearer ${owner.token}`
    const whole = await raw(path, { authorization })
    const head = await raw(path, { authorization }, 'HEAD')
    expect([head.status, head.bytes.length]).toEqual([200, 0])
    for (const name of ['content-type', 'content-length', 'cache-control'])
      expect([name, head.headers[name]]).toEqual([name, whole.headers[name]])
    expect((await raw(path, {}, 'HEAD')).status).toBe(401)
    expect((await raw(`${path}/${newId()}`, { authorization }, 'HEAD')).status).toBe(404)
    const logs = await raw(`${path}/${newId()}/logs`, { authorization }, 'HEAD')
    expect([logs.status, logs.headers['allow']]).toEqual([405, 'GET, OPTIONS'])
  })
})

describe('caches', () => {
  test('keep no answer with a secret or a person, refusals included', async () => {
    const client = await owner.ask('POST', '/api/v1/api-clients', { name: 'kept', scopes: ['limits:read'] })
    const of = `/api/v1/api-clients/${String(client.body['id'])}`
    const answers = {
      client,
      rotated: await owner.ask('POST', `${of}/rotate`),
      account: await owner.ask('GET', '/api/v1/account'),
      users: await owner.ask('GET', '/api/v1/users'),
      audit: await owner.ask('GET', '/api/v1/audit-events'),
      login: await ask('POST', '/api/v1/auth/login', { body: { email: 'x@example.com', password: 'x' } }),
      token: await ask('POST', '/oauth/token'),
      missing: await owner.ask('GET', `${path}/${newId()}`),
      stranger: await ask('GET', path),
      hosts: await (await makeOperator()).ask('GET', '/api/v1/platform/hosts'),
    }
    for (const [name, answer] of Object.entries(answers))
      expect([name, kept(answer)]).toEqual([name, 'no-store'])
  })

  test('may keep what is public', async () => {
    for (const url of ['/.well-known/jwks.json', '/.well-known/oauth-authorization-server'])
      expect(kept(await ask('GET', url))).not.toBe('no-store')
  })

  test('are told nothing of an answer without an ETag', async () => {
    for (const tag of ['*', '"x"', 'W/"x"'])
      expect((await owner.ask('GET', path, undefined, { 'if-none-match': tag })).status).toBe(200)
  })
})

/** As it is sent, not unpacked. */
const raw = (of: string, headers: Record<string, string>, method = 'GET') =>
  new Promise<{ status: number; headers: Record<string, unknown>; bytes: Buffer }>((resolve, reject) => {
    const asked = request(new URL(of, facts().api_url), { headers, method }, (answer) => {
      const chunks: Buffer[] = []
      answer.on('data', (chunk: Buffer) => chunks.push(chunk))
      answer.on('end', () =>
        resolve({ status: answer.statusCode ?? 0, headers: answer.headers, bytes: Buffer.concat(chunks) }),
      )
    })
    asked.on('error', reject)
    asked.end()
  })

describe('the document and the reference', () => {
  test.each([
    '/api/v1/openapi.json',
    '/docs',
    '/docs/start.js',
    '/docs/assets/swagger-ui-bundle.js',
    '/docs/assets/swagger-ui.css',
  ])('%s is sent compressed, and not again to who has it', async (of) => {
    const plain = await raw(of, {})
    const packed = await raw(of, { 'accept-encoding': 'gzip, br' })
    expect([plain.status, plain.headers['content-encoding']]).toEqual([200, undefined])
    expect([packed.status, packed.headers['content-encoding']]).toEqual([200, 'gzip'])
    expect(gunzipSync(packed.bytes).equals(plain.bytes)).toBe(true)
    expect(packed.headers['vary']).toMatch(/accept-encoding/i)
    for (const [answer, accepted] of [
      [plain, 'identity'],
      [packed, 'gzip'],
    ] as const) {
      const tag = String(answer.headers['etag'])
      const again = await raw(of, { 'if-none-match': tag, 'accept-encoding': accepted })
      expect([again.status, again.bytes.length]).toEqual([304, 0])
      expect((await raw(of, { 'if-none-match': '"other"', 'accept-encoding': accepted })).status).toBe(200)
    }
    expect(plain.headers['etag']).not.toBe(packed.headers['etag'])
  })

  test('the document has no operation of the internal API', async () => {
    const { body } = await ask('GET', '/api/v1/openapi.json')
    const listed = Object.keys(body['paths'] as object)
    expect(listed.filter((of) => of.startsWith('/internal'))).toEqual([])
    expect(listed).toContain(path)
  })

  test('no page asks a browser to turn plain HTTP into HTTPS', async () => {
    const { headers } = await ask('GET', '/docs')
    expect(headers.get('content-security-policy')).toContain("default-src 'self'")
    expect(headers.get('content-security-policy')).not.toContain('upgrade-insecure-requests')
  })
})
