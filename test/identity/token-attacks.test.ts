import { createPublicKey } from 'node:crypto'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { decodeJwt, exportJWK, generateKeyPair, importJWK, type JWK, type JWTPayload, SignJWT } from 'jose'
import { newId } from '../../lib/ids.ts'
import { SigningKey } from '../../models/identity/signing-keys.ts'
import { unsealSecret } from '../../models/secrets.ts'
import { ask, type Client } from '../support/client.ts'
import { makeMachine, tokenOf } from '../support/api-clients.ts'
import { facts } from '../support/stack.ts'
import { makeOperator, makeTenant } from '../support/tenants.ts'

// Forged and altered tokens, and input that tries injection. The forger of these tests even has the platform's own key,
// where the signature is not what is tested.

let owner: Client
let token: string
let claims: JWTPayload
let kid: string
let ours: JWK
let publicJwk: JWK
beforeAll(async () => {
  owner = (await makeTenant()).owner
  token = await tokenOf(await makeMachine(owner, ['containers:read']))
  claims = decodeJwt(token)
  const key = await SigningKey.findOne().sort({ generation: -1 }).lean()
  if (!key) throw new Error('no signing key')
  kid = key._id
  publicJwk = key.public_jwk
  ours = await unsealSecret<JWK>(key.private_sealed, key._id)
})

const status = async (sent: string, path = '/api/v1/containers'): Promise<number> =>
  (await ask('GET', path, { token: sent })).status

/** A token signed with our own key, with changed claims or header. */
const signed = async (
  change: Record<string, unknown>,
  header: Record<string, unknown> = {},
): Promise<string> =>
  new SignJWT({ ...claims, ...change })
    .setProtectedHeader({ alg: 'EdDSA', typ: 'at+jwt', kid, ...header })
    .sign(await importJWK(ours, 'EdDSA'))

const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')
const now = () => Math.floor(Date.now() / 1000)

test('a token that is re-signed unchanged is accepted: the tests’ forger works', async () => {
  expect(await status(await signed({}))).toBe(200)
  expect(await status(token)).toBe(200)
})

describe('a token is refused:', () => {
  test.each<[string, () => Promise<string> | string]>([
    ['alg none', () => `${part({ alg: 'none', typ: 'at+jwt', kid })}.${part(claims)}.`],
    [
      'alg none, with the signature left on',
      () => `${part({ alg: 'none', typ: 'at+jwt', kid })}.${part(claims)}.${token.split('.')[2]}`,
    ],
    [
      'HS256 with the public key as its secret',
      async () => {
        const pem = createPublicKey({ key: publicJwk, format: 'jwk' }).export({
          type: 'spki',
          format: 'pem',
        })
        return new SignJWT(claims)
          .setProtectedHeader({ alg: 'HS256', typ: 'at+jwt', kid })
          .sign(Buffer.from(pem))
      },
    ],
    [
      'HS256 with the bytes of the public key',
      () =>
        new SignJWT(claims)
          .setProtectedHeader({ alg: 'HS256', typ: 'at+jwt', kid })
          .sign(Buffer.from(String(publicJwk.x), 'base64url')),
    ],
    [
      'a key of the forger’s, under our key id',
      async () =>
        new SignJWT(claims)
          .setProtectedHeader({ alg: 'EdDSA', typ: 'at+jwt', kid })
          .sign((await generateKeyPair('EdDSA')).privateKey),
    ],
    [
      'a key that the header brings along',
      async () => {
        const pair = await generateKeyPair('EdDSA', { extractable: true })
        const jwk = await exportJWK(pair.publicKey)
        return new SignJWT(claims)
          .setProtectedHeader({ alg: 'EdDSA', typ: 'at+jwt', jwk })
          .sign(pair.privateKey)
      },
    ],
    ['a foreign issuer', () => signed({ iss: 'https://example.com' })],
    ['another audience', () => signed({ aud: 'https://example.com' })],
    ['no audience', () => signed({ aud: undefined })],
    ['expired', () => signed({ iat: now() - 7200, exp: now() - 3600 })],
    ['without an end', () => signed({ exp: undefined })],
    ['issued long ago, for years', () => signed({ iat: now() - 86_400, exp: now() + 86_400 })],
    ['not yet issued', () => signed({ nbf: now() + 600 })],
    ['typ of another kind', () => signed({}, { typ: 'JWT' })],
    ['typ of a data plane token', () => signed({}, { typ: 'plane+jwt' })],
    ['no typ', () => signed({}, { typ: undefined })],
    ['a key id that climbs', () => signed({}, { kid: '../../../../etc/passwd' })],
    ['a key id of nobody', () => signed({}, { kid: newId() })],
    ['a client that there is not', () => signed({ client_id: 'kci_nobody' })],
    ['a client given as a query', () => signed({ client_id: { $gt: '' } })],
    ['a generation before', () => signed({ generation: -1 })],
    ['no generation', () => signed({ generation: undefined })],
    [
      'a critical header that is unknown',
      () =>
        signed({}, { crit: ['x'], x: 1 }).catch(
          () => `${part({ alg: 'EdDSA', kid, typ: 'at+jwt', crit: ['x'], x: 1 })}.${part(claims)}.x`,
        ),
    ],
    ['a session’s token behind a JWT’s dots', () => `a.${owner.token}.b`],
    ['an access token behind a session’s prefix', () => `kls_${token}`],
    ['the secret of a session in place of a client’s token', () => owner.token.replace('kls_', 'kcs_')],
    ['oversized', () => `${token}${'A'.repeat(10_000)}`],
    [
      'more scopes written in',
      () =>
        `${token.split('.')[0]}.${part({ ...claims, scope: 'containers:delete' })}.${token.split('.')[2]}`,
    ],
  ])('%s', async (_, make) => {
    expect(await status(await make())).toBe(401)
  })
})

test('a token grants no scope that its client lacks, even with our signature', async () => {
  const forged = await signed({ scope: 'containers:read containers:delete platform:hosts' })
  expect(await status(forged)).toBe(200)
  expect(await status(forged, '/api/v1/platform/hosts')).toBe(403)
  const answer = await ask('DELETE', `/api/v1/containers/${newId()}`, { token: forged })
  expect(answer.status).toBe(403)
})

test('tokens of clients and users are refused where a host’s token is needed', async () => {
  for (const sent of [token, owner.token]) {
    const path = `/internal/v1/hosts/${newId()}/reports`
    expect((await ask('POST', path, { token: sent, body: {} })).status).toBe(401)
  }
})

describe('input is never a query operator', () => {
  const operators = [{ $gt: '' }, { $ne: null }, { $regex: '.*' }, ['x']]

  test.each(operators)('in a login: %j', async (value) => {
    const { email } = facts()
    for (const body of [
      { email: value, password: 'x' },
      { email, password: value },
    ]) {
      expect((await ask('POST', '/api/v1/auth/login', { body })).status).toBe(422)
    }
  })

  test.each(['name[$gt]=', 'name[$ne]=x', '$where=1', 'q[$regex]=.*', 'limit[$gt]=1'])(
    'in a filter: %s',
    async (query) => {
      expect((await owner.ask('GET', `/api/v1/containers?${encodeURI(query)}`)).status).toBe(400)
    },
  )

  test('a filter’s value is compared as plain text', async () => {
    await owner.containers.create({ start: false, tags: { a: 'b' } })
    const tags = encodeURIComponent('{"$gt":""}')
    const { total: tagged } = await owner.get<{ total: number }>(`/api/v1/containers?tags=${tags}`)
    expect(tagged).toBe(0)
    const { total } = await owner.get<{ total: number }>(
      `/api/v1/containers?name=${encodeURIComponent('{"$gt":""}')}`,
    )
    expect(total).toBe(0)
  })

  test.each(['(a+)+$', '^(([a-z])+.)+[A-Z]([a-z])+$', '('.repeat(100), '[', '\\', '.*'.repeat(50)])(
    'a search term is not a pattern: %s',
    async (q) => {
      const { total } = await owner.get<{ total: number }>(`/api/v1/containers?q=${encodeURIComponent(q)}`)
      expect(total).toBe(0)
    },
  )
})

test('no field of a body reaches a prototype', async () => {
  for (const body of ['{"__proto__": {"admin": true}}', '{"constructor": {"prototype": {"admin": true}}}']) {
    expect((await owner.ask('POST', '/api/v1/containers', body)).status).toBe(422)
  }
  const { permissions } = await (await makeTenant()).owner.get<{ permissions: string[] }>('/api/v1/account')
  expect(permissions.filter((permission) => permission.startsWith('platform:'))).toEqual([])
  expect(Object.keys({}.constructor.prototype as object)).toEqual([])
})

test('no field gets into a response header', async () => {
  const operator = await makeOperator()
  const name = 'host\r\nSet-Cookie: a=b'
  for (const [path, who] of [
    ['/api/v1/platform/hosts', operator],
    ['/api/v1/roles', owner],
    ['/api/v1/api-clients', owner],
  ] as const) {
    const answer = await who.ask('POST', path, { name, scopes: ['containers:read'] })
    expect([path, answer.status, answer.headers.get('set-cookie')]).toEqual([path, 422, null])
  }
})
