import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { newWebhookSecret } from '../../lib/standard-webhooks.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { Connector, type ConnectorDocument, connectorOf } from '../../models/connectors/connectors.ts'
import { openCredential } from '../../models/connectors/credentials.ts'
import { refreshIfFree } from '../../models/connectors/refresh.ts'
import { secretOf } from '../../models/connectors/secrets.ts'
import { EventSubscription } from '../../models/deploy/event-subscriptions.ts'
import { EventDelivery } from '../../models/deploy/events.ts'
import { sealSecret } from '../../models/secrets.ts'
import { connectorSchedule } from '../../worker/schedules.ts'
import { connectorsOf } from '../support/clients/connectors.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { logIn } from '../support/providers/browser-login.ts'
import { startGitlab } from '../support/providers/git-hosts.ts'
import { knowProviders } from '../support/providers/known.ts'
import { layout, outboundAllowed, providerSettings, stackSettings } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Refreshing tokens at a real OAuth server that takes each refresh token once.

const temporal = temporalClient(stackSettings())
let gitlab: Awaited<ReturnType<typeof startGitlab>>
let tenant: TestTenant
let connectors: ReturnType<typeof connectorsOf>

beforeAll(async () => {
  knowProviders()
  gitlab = await startGitlab()
  tenant = await makeTenant()
  connectors = connectorsOf(tenant.owner)
})
afterAll(async () => {
  await gitlab?.close()
  await temporal.connection.close()
})

const refreshes = (): number => gitlab.asked('refresh_token')
const look = (): Promise<void> => temporal.schedule.getHandle(connectorSchedule).trigger()
const stored = (id: string): Promise<ConnectorDocument> => connectorOf({ tenant_id: tenant.id }, id)
const set = (id: string, fields: Partial<ConnectorDocument>) =>
  Connector.updateOne({ _id: id, tenant_id: tenant.id }, { $set: fields })
const makeDue = (id: string) => set(id, { due_at: new Date() })
const tokensOf = async (id: string) => openCredential(await stored(id))

/** A connector by a login. */
async function connect(): Promise<string> {
  const { body } = await connectors.startOauth({ provider: 'gitlab' })
  const code = await logIn(String(body['authorize_url']))
  return String((await connectors.completeOauth({ code })).body['id'])
}

describe('a token that ends soon', () => {
  test('is refreshed by one request, with 50 callers in two processes', async () => {
    const id = await connect()
    await makeDue(id)
    const before = refreshes()
    const workers = [callers(id, 25), callers(id, 25)]
    await Promise.all(workers.map(({ ready }) => ready))
    for (const { begin } of workers) begin()
    const got = (await Promise.all(workers.map(({ versions }) => versions))).flat()
    expect(got).toEqual(Array.from({ length: 50 }, () => 2))
    expect(refreshes()).toBe(before + 1)
    expect(await connectors.get(id)).toMatchObject({ status: 'active', version: 2 })
  })

  test('is refreshed before its end by the schedule, and one that lasts is not', async () => {
    gitlab.life.access_sec = 3600
    const [due, lasting] = [await connect(), await connect()]
    const { expires_at, due_at } = await stored(lasting)
    expect((expires_at?.getTime() ?? 0) - (due_at?.getTime() ?? 0)).toBe(600_000)
    await makeDue(due)
    await look()
    await eventually(async () => (await connectors.get(due)).version === 2)
    expect(await connectors.get(lasting)).toMatchObject({ version: 1, status: 'active' })
  })

  test('keeps its refresh token if the answer has none', async () => {
    const id = await connect()
    const first = await tokensOf(id)
    gitlab.life.keepsRefreshToken = true
    for (const version of [2, 3]) {
      await makeDue(id)
      expect(await secretOf(tenant.id, id)).toMatchObject({ version })
    }
    gitlab.life.keepsRefreshToken = false
    const last = await tokensOf(id)
    expect(last?.refresh_token).toBe(first?.refresh_token)
    expect(last?.token).not.toBe(first?.token)
  })

  test('is used until its end while the provider does not answer', async () => {
    const id = await connect()
    await makeDue(id)
    await gitlab.close()
    try {
      expect(await secretOf(tenant.id, id)).toMatchObject({ version: 1 })
      expect(await connectors.get(id)).toMatchObject({
        status: 'active',
        status_reason: expect.stringContaining('refuses connections'),
      })
      expect((await stored(id)).due_at?.getTime()).toBeGreaterThan(Date.now())
      await set(id, { expires_at: new Date() })
      await expect(secretOf(tenant.id, id)).rejects.toMatchObject({ code: 'provider_unavailable' })
    } finally {
      gitlab = await startGitlab() // without its former grants
    }
  })
})

/** A connector of an MCP server, which has this token endpoint. */
const at = (token_endpoint: string): Partial<ConnectorDocument> => ({
  due_at: new Date(),
  base_url: `${gitlab.url}/mcp`,
  oauth: {
    issuer: gitlab.url,
    token_endpoint,
    revocation_endpoint: null,
    client_id: 'keelson',
    client_auth: 'none',
  },
})

test('a token endpoint that has moved to an address that is not public gets no token', async () => {
  const id = await connect()
  for (const url of ['http://169.254.169.254/token', 'http://[::1]:1/token', 'https://localhost:1/token']) {
    await set(id, at(url))
    expect(await secretOf(tenant.id, id)).toMatchObject({ version: 1 })
    expect(await connectors.get(id)).toMatchObject({
      status: 'active',
      status_reason: expect.stringContaining('is not at a public address'),
    })
  }
})

describe('a lease', () => {
  test('that has ended overwrites nothing: its answer came after another one’s', async () => {
    const id = await connect()
    gitlab.life.keepsRefreshToken = true
    await makeDue(id)
    const { reached, release } = gitlab.holdNext('after')
    const late = refreshIfFree(await stored(id))
    await reached
    await set(id, { lease_until: new Date() })
    expect(await refreshIfFree(await stored(id))).toMatchObject({ version: 2, status: 'active' })
    const winner = await tokensOf(id)
    release()
    expect(await late).toMatchObject({ version: 2 })
    expect(await tokensOf(id)).toEqual(winner)
    gitlab.life.keepsRefreshToken = false
  })

  test('that has ended is not believed: its token was used by another one', async () => {
    const id = await connect()
    await makeDue(id)
    const { reached, release } = gitlab.holdNext('before')
    const late = refreshIfFree(await stored(id))
    await reached
    await set(id, { lease_until: new Date() })
    expect(await refreshIfFree(await stored(id))).toMatchObject({ version: 2, status: 'active' })
    release() // the server answers invalid_grant
    expect(await late).toMatchObject({ version: 2, status: 'active' })
    expect(await connectors.activity(id)).toEqual([])
  })

  test('that another process has is waited for, and not asked past', async () => {
    const id = await connect()
    await makeDue(id)
    const { reached, release } = gitlab.holdNext('after')
    const before = refreshes()
    const first = refreshIfFree(await stored(id))
    await reached
    expect(await connectors.get(id)).toMatchObject({ status: 'refreshing' })
    const second = secretOf(tenant.id, id)
    release()
    expect(await first).toMatchObject({ version: 2 })
    expect(await second).toMatchObject({ version: 2 })
    expect(refreshes()).toBe(before + 1)
  })
})

describe('a login that is dead', () => {
  test('is a status, an activity and an event, and connecting again revives it', async () => {
    const id = await connect()
    await subscribe()
    await gitlabForgets(id)
    await makeDue(id)
    await look()
    const reason = 'GitLab no longer accepts the login'
    const shown = await eventually(async () => {
      const now = await connectors.get(id)
      return now.status === 'reauth_required' && now
    })
    expect(shown).toMatchObject({ status_reason: reason, version: 1 })
    const message = `The connector ${shown.name} must be connected again: ${reason}`
    expect(await connectors.activity(id)).toMatchObject([{ kind: 'reauth_required', message }])
    const told = await EventDelivery.find({ tenant_id: tenant.id, kind: 'connector.reauth_required' }).lean()
    expect(told.map((delivery) => delivery.message)).toEqual([message])
    await expect(secretOf(tenant.id, id)).rejects.toMatchObject({
      code: 'reauth_required',
      extensions: { connector_id: id },
    })

    const { body } = await connectors.startOauth({ provider: 'gitlab', connector_id: id })
    const code = await logIn(String(body['authorize_url']))
    expect(await connectors.completeOauth({ code })).toMatchObject({
      status: 200,
      body: { id, status: 'active', status_reason: null, version: 2 },
    })
    expect(await secretOf(tenant.id, id)).toMatchObject({ version: 2 })
  })

  test('without a refresh token must be connected again at its end, and not before', async () => {
    const id = await connect()
    await set(id, { refreshable: false, due_at: new Date() })
    expect(await secretOf(tenant.id, id)).toMatchObject({ version: 1 })
    await set(id, { expires_at: new Date() })
    await expect(secretOf(tenant.id, id)).rejects.toMatchObject({ code: 'reauth_required' })
    expect(await connectors.activity(id)).toHaveLength(1)
  })
})

/** Uses the refresh token past the platform, as if it were stolen: the server then accepts neither. */
async function gitlabForgets(id: string): Promise<void> {
  const { refresh_token } = (await tokensOf(id)) ?? {}
  const form = {
    grant_type: 'refresh_token',
    refresh_token: String(refresh_token),
    client_id: providerSettings.KEELSON_GITLAB_CLIENT_ID,
    client_secret: providerSettings.KEELSON_GITLAB_CLIENT_SECRET,
  }
  const use = () => fetch(`${gitlab.url}/oauth/token`, { method: 'POST', body: new URLSearchParams(form) })
  expect([(await use()).status, (await use()).status]).toEqual([200, 400])
}

/** A subscription to all events of the tenant. */
async function subscribe(): Promise<void> {
  const _id = newId()
  await new EventSubscription({
    _id,
    tenant_id: tenant.id,
    deploy_server_id: newId(),
    name: 'all',
    url: 'https://events.example',
    secret_sealed: await sealSecret(newWebhookSecret(), _id),
  }).save()
}

/** A process of the platform in which many callers ask at once. */
function callers(id: string, count: number) {
  const asked = {
    settings: { ...stackSettings(), ...providerSettings },
    allowed: outboundAllowed,
    tenant_id: tenant.id,
    id,
    callers: count,
  }
  const child: ChildProcess = spawn(
    process.execPath,
    ['test/support/connector-worker.ts', JSON.stringify(asked)],
    { cwd: layout.repository, stdio: ['pipe', 'pipe', 'inherit'] },
  )
  const output = child.stdout ? text(child.stdout) : Promise.resolve('')
  return {
    ready: child.stdout ? once(child.stdout, 'data').then(() => undefined) : Promise.resolve(),
    begin: () => void child.stdin?.write('begin\n'),
    versions: output.then((said) => JSON.parse(said.trim().split('\n').at(-1) ?? '[]') as number[]),
  }
}
