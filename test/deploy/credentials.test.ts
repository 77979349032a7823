import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Client, type DeployServerBody, type Json } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { rootLogin } from '../support/clients/deploy-servers.ts'
import { makeMachine, tokenOf } from '../support/api-clients.ts'
import { eventually } from '../support/eventually.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// A deploy server's own credentials. test/api/isolation.test.ts walks what they can do and what not.

let tenant: TestTenant
let server: DeployServerBody
let path: string

const servers = () => tenant.owner.deployServers
const ask = (token: string, method = 'GET', url = path) => new Client(token).ask(method, url)
const tokenWith = async (...scopes: string[]) => tokenOf(await makeMachine(tenant.owner, scopes))
const actions = async (filter: string) =>
  (await tenant.owner.get<{ items: Json[] }>(`/api/v1/audit-events?limit=100&${filter}`)).items.map(
    ({ action, actor_name, status }) => [action, actor_name, status],
  )
/** Logs in with the present credentials. */
async function logIn(): Promise<string> {
  const { root_login, root_password } = await servers().credentials(server.id)
  return String((await rootLogin(server.id, root_login, root_password)).body['token'])
}

beforeAll(async () => {
  tenant = await makeTenant()
  const { id, operation } = await servers().create()
  path = `/api/v1/deploy-servers/${id}`
  for (const [method, url] of [
    ['GET', `${path}/credentials`],
    ['POST', `${path}/credentials/rotate`],
  ] as const)
    expect(await tenant.owner.ask(method, url)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict', detail: expect.stringContaining('creating') },
    })
  await operation.success()
  server = await servers().get(id)
})

describe('the credentials of a deploy server', () => {
  test('are its addresses, a root login, an API token and its worker, the same on each read', async () => {
    const credentials = await servers().credentials(server.id)
    expect(credentials).toMatchObject({
      dashboard_url: expect.stringMatching(new RegExp(`/deploy/${server.id}$`)),
      api_base_url: expect.stringMatching(new RegExp(`${path}$`)),
      root_login: `root@${server.id.slice(-12)}`,
      root_password: expect.stringMatching(/^kdp_/),
      api_token: expect.stringMatching(/^kdt_/),
      worker_id: server.workers[0]?.machine_id,
    })
    expect(await servers().credentials(server.id)).toEqual(credentials)
    const headers = { authorization: `Bearer ${credentials.api_token}` }
    expect(await (await fetch(`${credentials.api_base_url}/applications`, { headers })).json()).toEqual({
      items: [],
      total: 0,
    })
  })

  test('are read with their own permission only', async () => {
    const token = await tokenWith('deploy_servers:read', 'deploy_servers:manage')
    expect(await ask(token, 'GET', `${path}/credentials`)).toMatchObject({
      status: 403,
      body: { permission: 'deploy_servers:credentials' },
    })
    const reader = await tokenWith('deploy_servers:credentials')
    expect(await ask(reader, 'GET', `${path}/credentials`)).toMatchObject({ status: 200 })
  })

  test('begin operations that they can follow and cancel, and no others', async () => {
    const token = await logIn()
    const apps = applicationsOf(new Client(token), server.id)
    const { operation } = await apps.create({ image: 'none' })
    expect(await operation.end()).toMatchObject({ state: 'failed', requested_by: server.id })
    const { items } = await tenant.owner.get<{ items: { id: string }[] }>(
      `/api/v1/operations?resource_id=${server.id}`,
    )
    const creation = `/api/v1/operations/${items[0]?.id}`
    expect(await ask(token, 'GET', creation)).toMatchObject({ status: 404 })
    expect(await ask(token, 'POST', `${creation}/cancel`)).toMatchObject({ status: 404 })
  })

  test('are named in audit events: their reads, logins, and what was done with them', async () => {
    const { api_token } = await servers().credentials(server.id)
    await logIn()
    await rootLogin(server.id, 'root', 'wrong')
    await ask(api_token, 'POST', `${path}/applications/${newId()}/stop`)
    const name = server.id.slice(-12)
    const own = '/api/v1/deploy-servers/{id}'
    // The event of a refused login is stored after the answer.
    const byServer = await eventually(async () => {
      const found = await actions('actor_kind=deploy_server')
      return found.some(([, , status]) => status === 401) && found
    })
    expect(byServer).toContainEqual([`POST ${own}/login`, `root@${name}`, 200])
    expect(byServer).toContainEqual([`POST ${own}/login`, `root@${name}`, 401])
    expect(byServer).toContainEqual([`POST ${own}/applications/{app}/stop`, `token@${name}`, 404])
    expect(await actions(`actor_kind=user&resource_id=${server.id}`)).toContainEqual([
      `GET ${own}/credentials`,
      expect.any(String),
      200,
    ])
  })

  test('end with a logout', async () => {
    const token = await logIn()
    expect(await ask(token)).toMatchObject({ status: 200 })
    expect(await tenant.owner.ask('POST', `${path}/logout`)).toMatchObject({ status: 403 })
    expect(await ask(token, 'POST', `${path}/logout`)).toMatchObject({ status: 204 })
    expect(await ask(token)).toMatchObject({ status: 401 })
  })

  test('are replaced in one call: the former ones and their sessions are refused at once', async () => {
    const session = await logIn()
    const before = await servers().credentials(server.id)
    const { status, body: after } = await tenant.owner.ask('POST', `${path}/credentials/rotate`)
    expect([status, after]).toEqual([200, await servers().credentials(server.id)])
    expect(await ask(session)).toMatchObject({ status: 401 })
    expect(await ask(before.api_token)).toMatchObject({ status: 401 })
    expect(await rootLogin(server.id, before.root_login, before.root_password)).toMatchObject({
      status: 401,
      body: { code: 'invalid_credentials' },
    })
    expect(await ask(String(after['api_token']))).toMatchObject({ status: 200 })
    expect(await ask(await logIn())).toMatchObject({ status: 200 })
  })

  test('cannot be guessed: five failed logins lock the root login, until the credentials are rotated', async () => {
    const { root_login, root_password } = await servers().credentials(server.id)
    const unknown = await rootLogin(newId(), root_login, root_password)
    const guesses = await Promise.all(
      Array.from({ length: 5 }, (_, index) => rootLogin(server.id, root_login, `wrong ${index}`)),
    )
    for (const { status, body } of guesses)
      expect([status, { ...body, request_id: '' }]).toEqual([401, { ...unknown.body, request_id: '' }])
    const late = await rootLogin(server.id, root_login, root_password)
    expect([late.status, late.headers.get('retry-after')]).toEqual([429, expect.stringMatching(/^\d+$/)])
    await tenant.owner.ask('POST', `${path}/credentials/rotate`)
    expect(await ask(await logIn())).toMatchObject({ status: 200 })
  })

  test('end when the deletion of the deploy server is accepted', async () => {
    const [session, { api_token }] = [await logIn(), await servers().credentials(server.id)]
    const { operation } = await servers().delete(server.id)
    for (const token of [session, api_token]) expect(await ask(token)).toMatchObject({ status: 401 })
    await operation.success()
    expect(await tenant.owner.ask('GET', `${path}/credentials`)).toMatchObject({ status: 404 })
  })
})
