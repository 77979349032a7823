import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Connector } from '../../models/connectors/connectors.ts'
import { ConnectorLogin } from '../../models/connectors/logins.ts'
import { secretOf } from '../../models/connectors/secrets.ts'
import type { Json } from '../support/client.ts'
import { type ConnectorBody, connectorsOf } from '../support/clients/connectors.ts'
import '../support/exclusive.ts'
import { logIn } from '../support/providers/browser-login.ts'
import { personalToken, startGithub, startGitlab } from '../support/providers/git-hosts.ts'
import { knowProviders } from '../support/providers/known.ts'
import { mistakeAt } from '../support/refusals.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Logins in the browser, at real OAuth servers that have the paths and the ways of GitLab and GitHub (test/support/providers/).

let gitlab: Awaited<ReturnType<typeof startGitlab>>
let github: Awaited<ReturnType<typeof startGithub>>
let tenant: TestTenant
let connectors: ReturnType<typeof connectorsOf>

beforeAll(async () => {
  knowProviders()
  gitlab = await startGitlab()
  github = await startGithub()
  tenant = await makeTenant()
  connectors = connectorsOf(tenant.owner)
})
afterAll(async () => {
  await gitlab?.close()
  await github?.close()
})

const loginOf = async (login_id: string) => {
  const login = await ConnectorLogin.findOne({ _id: login_id, tenant_id: tenant.id }).lean()
  if (!login) throw new Error('no such login')
  return login
}
async function startOauth(fields: Json = {}, of = connectors) {
  const { status, body } = await of.startOauth({ provider: 'gitlab', ...fields })
  expect([status, body]).toEqual([200, expect.objectContaining({ login_id: expect.any(String) })])
  return { login_id: String(body['login_id']), authorize_url: String(body['authorize_url']) }
}

const paramsOf = (url: string) => Object.fromEntries(new URL(url).searchParams)

test('a login’s record keeps its secrets sealed and hashed', async () => {
  const device = await connectors.startDevice({ provider: 'gitlab' })
  const { login_id, authorize_url } = await startOauth()
  const stored = JSON.stringify([await loginOf(login_id), await loginOf(String(device.body['login_id']))])
  const { state = 'none' } = paramsOf(authorize_url)
  expect(stored).not.toContain(state)
  expect(stored).not.toMatch(/device_code|verifier/)
})

describe('a login in the browser', () => {
  test('asks with state and PKCE, and takes the code in each form that a user may paste', async () => {
    for (const pasted of [
      (url: string, login_id: string) => ({ login_id, code: paramsOf(url)['code'] }),
      (url: string) => ({ code: `${paramsOf(url)['code']}#${paramsOf(url)['state']}` }),
      (url: string) => ({ code: url }),
      (url: string, login_id: string) => ({ login_id, code: ` ${url}\n` }),
    ]) {
      const { login_id, authorize_url } = await startOauth()
      expect(paramsOf(authorize_url)).toMatchObject({
        client_id: 'keelson',
        response_type: 'code',
        redirect_uri: `${facts().api_url}/connectors/callback`,
        scope: 'api read_user',
        state: expect.stringMatching(/^[\w-]{43}$/),
        code_challenge: expect.stringMatching(/^[\w-]{43}$/),
        code_challenge_method: 'S256',
      })
      const url = await logIn(authorize_url)
      const { status, body, headers } = await connectors.completeOauth(pasted(url, login_id))
      expect([status, body]).toEqual([
        201,
        expect.objectContaining({
          kind: 'oauth',
          status: 'active',
          account: { id: 'id-of-ada', login: 'ada' },
        }),
      ])
      expect(headers.get('location')).toBe(`/api/v1/connectors/${String(body['id'])}`)
    }
    expect(await connectors.completeOauth({ code: 'alone' })).toMatchObject(mistakeAt('/login_id'))
    const { login_id, authorize_url } = await startOauth()
    expect(await connectors.completeOauth({ login_id, code: authorize_url })).toMatchObject(
      mistakeAt('/code'),
    )
  })

  test('is used once, whatever is pasted again', async () => {
    const { login_id, authorize_url } = await startOauth()
    const code = await logIn(authorize_url)
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => connectors.completeOauth({ login_id, code })),
    )
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 409, 409, 409])
    expect(await connectors.completeOauth({ code })).toMatchObject({
      status: 409,
      body: { code: 'login_used' },
    })
  })

  test('ends once under an Idempotency-Key, and answers the same again', async () => {
    const { authorize_url } = await startOauth()
    const code = await logIn(authorize_url)
    const key = { 'idempotency-key': newId() }
    const complete = () => tenant.owner.ask('POST', '/api/v1/connectors/oauth/complete', { code }, key)
    const [first, again] = [await complete(), await complete()]
    expect([first.status, again.status, again.body]).toEqual([201, 201, first.body])
  })

  test('takes no state of another login, user or tenant', async () => {
    const [mine, next] = [await startOauth(), await startOauth()]
    const stranger = connectorsOf((await makeTenant()).owner)
    const theirs = await startOauth({}, stranger)
    const code = await logIn(mine.authorize_url)
    expect(await connectors.completeOauth({ login_id: next.login_id, code })).toMatchObject({
      status: 422,
      body: { code: 'state_mismatch' },
    })
    expect(await stranger.completeOauth({ code })).toMatchObject({ status: 404 })
    expect(await stranger.completeOauth({ login_id: mine.login_id, code })).toMatchObject({ status: 404 })
    expect(await stranger.completeOauth({ login_id: theirs.login_id, code })).toMatchObject({ status: 422 })
    const colleague = connectorsOf(await tenant.user('owner'))
    expect(await colleague.completeOauth({ code })).toMatchObject({ status: 404 })
    // Injected into a login of the attacker's own: the verifier is another one.
    const injected = { login_id: theirs.login_id, code: paramsOf(code)['code'] }
    expect(await stranger.completeOauth(injected)).toMatchObject({
      status: 422,
      body: { code: 'code_refused' },
    })
  })

  test('from which PKCE was taken away gives nothing', async () => {
    const { login_id, authorize_url } = await startOauth()
    const without = new URL(authorize_url)
    without.searchParams.delete('code_challenge')
    without.searchParams.delete('code_challenge_method')
    const code = await logIn(without.href)
    expect(await connectors.completeOauth({ login_id, code })).toMatchObject({
      status: 422,
      body: { code: 'code_refused' },
    })
    expect(await connectors.completeOauth({ login_id, code })).toMatchObject({ status: 409 })
  })

  test('takes no redirect of another issuer', async () => {
    const { login_id, authorize_url } = await startOauth()
    const url = new URL(await logIn(authorize_url))
    url.searchParams.set('iss', 'https://attacker.example')
    expect(await connectors.completeOauth({ login_id, code: url.href })).toMatchObject({
      status: 422,
      body: { code: 'code_refused' },
    })
  })

  test('that the user denies has ended, and one that is late has expired', async () => {
    const { authorize_url } = await startOauth()
    const denied = await logIn(authorize_url, { aborts: true })
    expect(paramsOf(denied)).toMatchObject({ error: 'access_denied' })
    expect(await connectors.completeOauth({ code: denied })).toMatchObject({
      status: 409,
      body: { code: 'login_denied' },
    })
    const late = await startOauth()
    const code = await logIn(late.authorize_url)
    await ConnectorLogin.updateOne(
      { _id: late.login_id, tenant_id: tenant.id },
      { $set: { expires_at: new Date() } },
    )
    expect(await connectors.completeOauth({ code })).toMatchObject({
      status: 409,
      body: { code: 'login_expired' },
    })
  })

  test('at GitHub, which sends errors as 200, is refused as at others', async () => {
    const { login_id, authorize_url } = await startOauth({ provider: 'github' })
    expect(await connectors.completeOauth({ login_id, code: 'made-up' })).toMatchObject({
      status: 422,
      body: { code: 'code_refused' },
    })
    const again = await startOauth({ provider: 'github' })
    expect(authorize_url).not.toBe(again.authorize_url)
    const code = await logIn(again.authorize_url)
    expect(await connectors.completeOauth({ code })).toMatchObject({ status: 201 })
  })
})

describe('a login that replaces a connector', () => {
  test('of another account waits for the confirmation, and keeps what it got', async () => {
    const imported = await connectors.import({
      provider: 'gitlab',
      api_key: personalToken('ada'),
      name: 'replaced',
    })
    expect(imported).toMatchObject({ status: 201, body: { account: { login: 'ada' }, kind: 'api_key' } })
    const { id } = imported.body as ConnectorBody
    const token = { provider: 'gitlab', api_key: personalToken('bob'), connector_id: id }
    const differs = { status: 409, body: { code: 'account_change_unconfirmed' } }
    expect(await connectors.import(token)).toMatchObject(differs)

    const same = await startOauth({ connector_id: id })
    expect(await connectors.completeOauth({ code: await logIn(same.authorize_url) })).toMatchObject({
      status: 200,
      body: { id, name: 'replaced', version: 2, kind: 'oauth' },
    })

    const other = await startOauth({ connector_id: id })
    const code = await logIn(other.authorize_url, { login: 'bob' })
    expect(await connectors.completeOauth({ code })).toMatchObject(differs)
    expect(await connectors.get(id)).toMatchObject({ version: 2, account: { login: 'ada' } })
    expect(await connectors.completeOauth({ code, confirm_account_change: true })).toMatchObject({
      status: 200,
      body: { id, version: 3, account: { login: 'bob' } },
    })
  })

  test('of another tenant, or of none, does not begin', async () => {
    const stranger = connectorsOf((await makeTenant()).owner)
    const [{ id } = { id: '' }] = await connectors.list()
    for (const connector_id of [id, newId()]) {
      expect(await stranger.startOauth({ provider: 'gitlab', connector_id })).toMatchObject({ status: 404 })
      expect(await stranger.startDevice({ provider: 'gitlab', connector_id })).toMatchObject({ status: 404 })
    }
  })
})

const server = () => `${gitlab.url}/mcp`

describe('an MCP server', () => {
  test('names its OAuth server, which takes the platform as a new client', async () => {
    const { authorize_url } = await startOauth({ provider: 'mcp', base_url: server() })
    expect(paramsOf(authorize_url)).toMatchObject({ resource: server(), code_challenge_method: 'S256' })
    expect(paramsOf(authorize_url)['client_id']).not.toBe('keelson')
    const code = await logIn(authorize_url)
    const { status, body } = await connectors.completeOauth({ code })
    expect([status, body]).toEqual([
      201,
      expect.objectContaining({ provider: 'mcp', base_url: server(), status: 'active', account: null }),
    ])
    const id = String(body['id'])
    const before = await secretOf(tenant.id, id)
    await Connector.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { due_at: new Date() } })
    const after = await secretOf(tenant.id, id)
    expect([before.version, after.version]).toEqual([1, 2])
    expect(after.headers).not.toEqual(before.headers)
  })

  test('that leads to an address that is not public is refused', async () => {
    for (const base_url of [`${gitlab.url}/hostile`]) {
      const answer = await connectors.startOauth({ provider: 'mcp', base_url })
      expect(answer).toMatchObject({ status: 422, body: { code: 'address_not_allowed' } })
      expect(JSON.stringify(answer.body)).not.toContain('169.254')
    }
  })
})

const tokenOf = async (id: string) =>
  String((await secretOf(tenant.id, id)).headers['authorization']).replace('Bearer ', '')

async function connect(provider: string): Promise<string> {
  const { authorize_url } = await startOauth({ provider })
  return String((await connectors.completeOauth({ code: await logIn(authorize_url) })).body['id'])
}

describe('a deleted connector', () => {
  test('is revoked at GitLab and GitHub, each in its way', async () => {
    const id = await connect('gitlab')
    const token = await tokenOf(id)
    expect(await gitlab.accountOf(token)).toBe('ada')
    expect(await connectors.delete(id)).toMatchObject({ status: 200, body: { revoked: true, reason: null } })
    expect(await gitlab.accountOf(token)).toBeNull()

    const other = await connect('github')
    const itsToken = await tokenOf(other)
    expect(await connectors.delete(other)).toMatchObject({ status: 200, body: { revoked: true } })
    expect(github.revoked).toContain(itsToken)
  })
})
