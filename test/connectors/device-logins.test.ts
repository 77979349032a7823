import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { ConnectorLogin } from '../../models/connectors/logins.ts'
import { secretOf } from '../../models/connectors/secrets.ts'
import type { Json } from '../support/client.ts'
import { type ConnectorBody, connectorsOf } from '../support/clients/connectors.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { personalToken, startGithub, startGitlab } from '../support/providers/git-hosts.ts'
import { knowProviders } from '../support/providers/known.ts'
import type { OauthServer } from '../support/providers/oauth-server.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Logins by device code, at real OAuth servers that have the paths and the ways of GitLab and GitHub (test/support/providers/).

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
/** As if the pause were long, on a machine that is slow. */
const delayed = (login_id: string) =>
  ConnectorLogin.updateOne(
    { _id: login_id, tenant_id: tenant.id },
    { $set: { next_poll_at: new Date(Date.now() + 60_000) } },
  )
/** As if the pause were over. */
const hasten = (login_id: string) =>
  ConnectorLogin.updateOne({ _id: login_id, tenant_id: tenant.id }, { $set: { next_poll_at: new Date() } })

const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code'
const hosts: [string, () => OauthServer][] = [
  ['gitlab', () => gitlab],
  ['github', () => github],
]

async function startDevice(fields: Json = {}) {
  const { status, body } = await connectors.startDevice({ provider: 'gitlab', ...fields })
  expect([status, body]).toEqual([200, expect.objectContaining({ interval_sec: 1 })])
  return { login_id: String(body['login_id']), user_code: String(body['user_code']), body }
}

async function poll(login_id: string, more: Json = {}) {
  await hasten(login_id)
  return connectors.pollDevice(login_id, more)
}

describe.each(hosts)('a device login at %s', (provider, server) => {
  test('is pending until the user approves it, and done once', async () => {
    const { login_id, user_code, body } = await startDevice({ provider })
    expect(String(body['verification_url'])).toMatch(/^http:\/\/127\.0\.0\.1/)
    const asked = server().asked(deviceGrant)
    const pending = { status: 200, body: { status: 'pending', connector: null } }
    await delayed(login_id)
    const early = await connectors.pollDevice(login_id)
    expect(early).toMatchObject(pending)
    expect(early.body['retry_after_sec']).toBeGreaterThan(1)
    expect(server().asked(deviceGrant)).toBe(asked) // too early: nobody was asked
    expect(await poll(login_id)).toMatchObject(pending)
    expect(server().asked(deviceGrant)).toBe(asked + 1)

    await server().approve(user_code, 'ada')
    const { status, body: done } = await poll(login_id)
    expect([status, done]).toEqual([
      200,
      {
        status: 'done',
        retry_after_sec: null,
        connector: expect.objectContaining({
          provider,
          kind: 'device',
          status: 'active',
          account: { id: 'id-of-ada', login: 'ada' },
          secret_hint: null,
          expires_at: expect.any(String),
        }),
      },
    ])
    const { id } = done['connector'] as ConnectorBody
    expect(await poll(login_id)).toMatchObject({ status: 409, body: { code: 'login_used' } })
    const { headers } = await secretOf(tenant.id, id)
    expect(await server().accountOf(String(headers['authorization']).replace('Bearer ', ''))).toBe('ada')
  })

  test('that the provider slows down is slower from then on', async () => {
    const { login_id, user_code } = await startDevice({ provider })
    server().slowDown(1)
    expect(await poll(login_id)).toMatchObject({ body: { status: 'pending' } })
    expect(await loginOf(login_id)).toMatchObject({ interval_sec: 6 })
    const asked = server().asked(deviceGrant)
    await delayed(login_id)
    expect(await connectors.pollDevice(login_id)).toMatchObject({ body: { status: 'pending' } })
    expect(server().asked(deviceGrant)).toBe(asked)
    await server().approve(user_code, 'ada')
    expect(await poll(login_id)).toMatchObject({ body: { status: 'done' } })
  })

  test('that the user denies has ended', async () => {
    const { login_id, user_code } = await startDevice({ provider })
    await server().deny(user_code)
    expect(await poll(login_id)).toMatchObject({ status: 409, body: { code: 'login_denied' } })
    expect(await poll(login_id)).toMatchObject({ status: 409, body: { code: 'login_denied' } })
  })

  test('that nobody approves in time has expired, at the provider or here', async () => {
    server().life.device_sec = 1
    const { login_id } = await startDevice({ provider })
    server().life.device_sec = 600
    // The platform believes that it goes on, and asks until the provider says that it does not.
    const expires_at = new Date(Date.now() + 60_000)
    await ConnectorLogin.updateOne({ _id: login_id, tenant_id: tenant.id }, { $set: { expires_at } })
    const answer = await eventually(async () => {
      const polled = await poll(login_id)
      return polled.status === 200 ? null : polled
    })
    expect([answer.status, answer.body['code']]).toEqual([409, 'login_expired'])

    const other = await startDevice({ provider })
    await ConnectorLogin.updateOne(
      { _id: other.login_id, tenant_id: tenant.id },
      { $set: { expires_at: new Date() } },
    )
    expect(await poll(other.login_id)).toMatchObject({ status: 409, body: { code: 'login_expired' } })
  })

  test('that is polled many times at once asks once, and makes one connector', async () => {
    const { login_id, user_code } = await startDevice({ provider, name: `one-${provider}` })
    await server().approve(user_code, 'ada')
    const asked = server().asked(deviceGrant)
    const pace = { next_poll_at: new Date(), interval_sec: 60 }
    await ConnectorLogin.updateOne({ _id: login_id, tenant_id: tenant.id }, { $set: pace })
    const answers = await Promise.all(Array.from({ length: 8 }, () => connectors.pollDevice(login_id)))
    const ends = answers.map(({ status, body }) => JSON.stringify(body['code'] ?? body['status'] ?? status))
    expect(ends.filter((end) => end === '"done"')).toHaveLength(1)
    expect(ends.filter((end) => !/done|pending|login_used/.test(end))).toEqual([])
    expect(server().asked(deviceGrant)).toBe(asked + 1)
    expect(await connectors.list(`?name=one-${provider}`)).toHaveLength(1)
  })
})

test('a device login is its user’s: others do not find it', async () => {
  const { login_id, user_code } = await startDevice()
  await gitlab.approve(user_code, 'ada')
  await hasten(login_id)
  const colleague = connectorsOf(await tenant.user('owner'))
  const stranger = connectorsOf((await makeTenant()).owner)
  for (const other of [colleague, stranger])
    expect(await other.pollDevice(login_id)).toMatchObject({ status: 404 })
  expect(await connectors.completeOauth({ login_id, code: 'x' })).toMatchObject({ status: 404 })
  expect(await poll(login_id)).toMatchObject({ body: { status: 'done' } })
})

test('a device login that replaces a connector of another account waits for the confirmation', async () => {
  const { body } = await connectors.import({ provider: 'gitlab', api_key: personalToken('bob') })
  const id = String(body['id'])
  const { login_id, user_code } = await startDevice({ connector_id: id })
  await gitlab.approve(user_code, 'ada')
  expect(await poll(login_id)).toMatchObject({
    status: 409,
    body: { code: 'account_change_unconfirmed' },
  })
  expect(await connectors.get(id)).toMatchObject({ version: 1, account: { login: 'bob' } })
  expect(await connectors.pollDevice(login_id, { confirm_account_change: true })).toMatchObject({
    body: { status: 'done', connector: { id, version: 2, kind: 'device', account: { login: 'ada' } } },
  })
})
