import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Connector, connectorOf } from '../../models/connectors/connectors.ts'
import { openCredential, sealCredential } from '../../models/connectors/credentials.ts'
import { secretOf } from '../../models/connectors/secrets.ts'
import { ClientAt } from '../support/client-at.ts'
import { type ConnectorBody, connectorsOf } from '../support/clients/connectors.ts'
import '../support/exclusive.ts'
import { isLong } from '../support/long.ts'
import { freePort } from '../../script/lib/free-port.ts'
import { type OwnApi, startOwnApi } from '../support/own-api.ts'
import { knowProviders } from '../support/providers/known.ts'
import { type Gitea, hasGitea, logInAtGitea, openGitea } from '../support/providers/gitea.ts'
import { outboundAllowed } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Logins and tokens at Gitea itself, in the long form, since it takes minutes to build.

const describeGitea = isLong && hasGitea ? describe : describe.skip

describeGitea('Gitea', () => {
  let gitea: Gitea
  let api: OwnApi
  let tenant: TestTenant
  let connectors: ReturnType<typeof connectorsOf>

  beforeAll(async () => {
    const [port, apiPort] = [await freePort(), await freePort()]
    gitea = await openGitea(port)
    const apiUrl = `http://127.0.0.1:${apiPort}`
    const client = await gitea.makeClient(`${apiUrl}/connectors/callback`)
    const settings = {
      KEELSON_GITEA_URL: gitea.url,
      KEELSON_GITEA_CLIENT_ID: client.client_id,
      KEELSON_GITEA_CLIENT_SECRET: client.client_secret,
    }
    const allowed = [...outboundAllowed, `127.0.0.1:${port}`]
    knowProviders(settings, allowed)
    api = await startOwnApi(
      { ...settings, KEELSON_CONSOLE_URL: apiUrl, KEELSON_OUTBOUND_ALLOWED: allowed.join(',') },
      apiPort,
    )
    tenant = await makeTenant()
    connectors = connectorsOf(new ClientAt(api.url, tenant.owner.token)) // its settings name this Gitea
  })
  afterAll(async () => {
    await api?.stop()
    await gitea?.close()
  })

  async function connect(): Promise<ConnectorBody> {
    const { body } = await connectors.startOauth({ provider: 'gitea' })
    const code = await logInAtGitea(String(body['authorize_url']))
    const completed = await connectors.completeOauth({ code })
    expect([completed.status, completed.body]).toEqual([
      201,
      expect.objectContaining({ provider: 'gitea', kind: 'oauth', status: 'active' }),
    ])
    return completed.body as ConnectorBody
  }
  const stored = (id: string) => connectorOf({ tenant_id: tenant.id }, id)
  const makeDue = (id: string) =>
    Connector.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { due_at: new Date() } })
  async function accountAt(id: string): Promise<string> {
    const { base_url, headers } = await secretOf(tenant.id, id)
    const answer = await fetch(`${base_url}/api/v1/user`, { headers })
    return ((await answer.json()) as { login: string }).login
  }

  test('gives a token for a login in the browser, which its API takes', async () => {
    const connector = await connect()
    expect(connector).toMatchObject({ account: { login: 'ada' }, base_url: gitea.url })
    expect(connector.expires_at).not.toBeNull()
    expect(await accountAt(connector.id)).toBe('ada')
  })

  test('gives one new token to 50 callers, although each refresh token is good once', async () => {
    const { id } = await connect()
    await makeDue(id)
    const got = await Promise.all(Array.from({ length: 50 }, () => secretOf(tenant.id, id)))
    expect(new Set(got.map(({ version }) => version))).toEqual(new Set([2]))
    expect(await accountAt(id)).toBe('ada')
    await makeDue(id)
    expect(await secretOf(tenant.id, id)).toMatchObject({ version: 3 })
  })

  test('refuses a refresh token that was used, and the connector says that a login is needed', async () => {
    const { id } = await connect()
    const first = await openCredential(await stored(id))
    await makeDue(id)
    await secretOf(tenant.id, id)
    // As if the process that refreshed it had been killed before it kept the new token.
    const secret_sealed = await sealCredential({ _id: id, tenant_id: tenant.id, version: 2 }, first)
    await Connector.updateOne(
      { _id: id, tenant_id: tenant.id },
      { $set: { secret_sealed, due_at: new Date() } },
    )
    await expect(secretOf(tenant.id, id)).rejects.toMatchObject({ code: 'reauth_required' })
    expect(await connectors.get(id)).toMatchObject({ status: 'reauth_required' })
  })

  test('checks a token that a user made by hand', async () => {
    const good = await connectors.import({
      provider: 'gitea',
      name: 'by-hand',
      api_key: await gitea.makeToken('t'),
    })
    expect([good.status, good.body]).toEqual([
      201,
      expect.objectContaining({
        kind: 'api_key',
        status: 'active',
        account: expect.objectContaining({ login: 'ada' }),
      }),
    ])
    expect(await accountAt(String(good.body['id']))).toBe('ada')
    const bad = await connectors.import({ provider: 'gitea', name: 'made-up', api_key: '0'.repeat(40) })
    expect(bad).toMatchObject({ status: 422, body: { code: 'credential_refused' } })
  })
})
