import { beforeAll, describe, expect, test } from '@jest/globals'
import { successOf } from '../../api/operation.ts'
import { type Belongings, collectionOf, idsFor, makeOneOfEach } from '../support/belongings.ts'
import { declared } from '../support/declared.ts'
import { Client, type Json } from '../support/client.ts'
import { rootLogin } from '../support/clients/deploy-servers.ts'
import { newId } from '../../lib/ids.ts'
import { ensureDeployCredentials, openDeployCredentials } from '../../models/identity/deploy-credentials.ts'
import { refusing } from '../support/refusals.ts'
import { sampleOf } from '../support/samples.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Another tenant's resources look absent. Each declared operation is tried with the ids of one tenant by the owner of
// another, who has all permissions in their own tenant.

let tenant: TestTenant
let stranger: Client
let strangerTenant: string
let theirs: Belongings

beforeAll(async () => {
  tenant = await makeTenant()
  const other = await makeTenant()
  strangerTenant = other.id
  stranger = other.owner
  theirs = await makeOneOfEach(tenant)
})

const forTenants = declared.filter(({ permission }) =>
  typeof permission === 'string'
    ? !permission.startsWith('platform:')
    : ['signed-in', 'users'].includes(permission.for),
)
const withParams = forTenants.filter(({ path }) => path.includes('{'))
const lists = forTenants.filter((operation) => {
  const { body } = successOf(operation)
  return operation.method === 'GET' && body !== null && 'shape' in body && 'items' in (body.shape as object)
})

describe('the id of another tenant’s resource gets 404, like an unknown id:', () => {
  test.each(withParams)('$name', async ({ method, path, body }) => {
    const ids = idsFor(theirs, path)
    if (!ids) throw new Error(`${path}: make one in test/support/belongings.ts`)
    const url = (of: Record<string, string>) =>
      path.replaceAll(/\{(\w+)\}/g, (_, name: string) => of[name] ?? newId())
    const sent = body ? sampleOf(body) : undefined
    const refused = refusing(() => tenant)
    const answer = await refused(() => stranger.ask(method, url(ids), sent))
    const unknown = await refused(() => stranger.ask(method, url({}), sent))
    expect(answer).toMatchObject({ status: 404, body: { code: 'not_found' } })
    expect({ ...answer.body, request_id: '' }).toEqual({ ...unknown.body, request_id: '' })
  })
})

describe('a list shows nothing of another tenant, whatever the query:', () => {
  test.each(lists.filter(({ path }) => !path.includes('{')))('$name', async ({ path, query }) => {
    const ids = Object.values(theirs[collectionOf(path)] ?? {})
    const fields = Object.keys((query as { shape?: object } | undefined)?.shape ?? {})
    const searches = ['limit=100&order=asc', 'q=test', `q=${tenant.id}`, 'q=.*']
    const asked = ['', ...(query ? searches : [])] // VM images are few, and the same for all tenants
    if (fields.includes('tenant_id')) asked.push(`tenant_id=${tenant.id}`)
    if (fields.includes('id')) asked.push(...ids.filter((id) => id.length === 36).map((id) => `id=${id}`))
    if (fields.includes('name')) asked.push(...ids.map((name) => `name=${name}`))
    for (const search of asked) {
      const { items, total } = await stranger.get<{ items: Json[]; total: number }>(`${path}?${search}`)
      const said = JSON.stringify(items)
      for (const secret of [tenant.id, ...ids.filter((id) => id.length === 36)])
        expect(said).not.toContain(secret)
      // Built-in roles belong to every tenant.
      for (const { tenant_id = null } of items) expect([strangerTenant, null]).toContain(tenant_id)
      if (/^(id|tenant_id)=/.test(search)) expect([search, items, total]).toEqual([search, [], 0])
    }
  })
})

// A deploy server's root login and API token, in the tenant that owns all of these things.

const itself = '/api/v1/deploy-servers/{id}'
const asksWho = declared.filter(
  ({ permission }) => typeof permission === 'string' || ['signed-in', 'users'].includes(permission.for),
)
const below = asksWho.filter(
  ({ method, path }) =>
    (path.startsWith(`${itself}/`) && !/\/(credentials|logout|machines|event-subscriptions)\b/.test(path)) ||
    (path === itself && method === 'GET'),
)
const beyond = asksWho.filter(
  (operation) => !below.includes(operation) && !operation.path.endsWith('/logout'),
)
/** Deletions come last, and those of what is inside first. */
const rank = ({ method, path }: { method: string; path: string }): number =>
  method === 'GET' ? 0 : method === 'DELETE' ? 1000 - path.length : 1

const urlOf = (path: string): string =>
  path.replaceAll(/\{(\w+)\}/g, (_, name: string) => idsFor(theirs, path)?.[name] ?? newId())

describe('the credentials of a deploy server', () => {
  let root: Client
  let machine: Client
  let ofAnother: Client
  beforeAll(async () => {
    const id = theirs['deploy-servers']?.['id'] ?? ''
    const { root_login, root_password, api_token } = await tenant.owner.deployServers.credentials(id)
    root = new Client(String((await rootLogin(id, root_login, root_password)).body['token']))
    machine = new Client(api_token)
    const another = { _id: newId(), tenant_id: tenant.id }
    await ensureDeployCredentials(another)
    ofAnother = new Client((await openDeployCredentials(another))?.api_token ?? '')
  })

  test.each(beyond)('do nothing beyond it: $name', async ({ method, path }) => {
    for (const caller of [root, machine]) {
      const { status } = await refusing(() => tenant)(() => caller.ask(method, urlOf(path)))
      expect([403, 404]).toContain(status)
    }
  })

  test.each(below)('do not reach another one: $name', async ({ method, path, body }) => {
    const sent = body ? sampleOf(body) : undefined
    const answer = await refusing(() => tenant)(() => ofAnother.ask(method, urlOf(path), sent))
    expect(answer).toMatchObject({ status: 404, body: { code: 'not_found' } })
  })

  // Last, because it changes and deletes what is there.
  test.each(below.toSorted((a, b) => rank(a) - rank(b)))(
    'reach what is below it: $name',
    async ({ method, path, body }) => {
      const sent = body ? sampleOf(body) : undefined
      for (const caller of method === 'GET' ? [root, machine] : [machine]) {
        const { status } = await caller.ask(method, urlOf(path), sent)
        // Its rules may refuse: no release serves, or the sample is no cron expression.
        expect([200, 201, 202, 204, 409, 422]).toContain(status)
      }
    },
  )
})

test('the tests above find operations with ids, lists, and operations below a deploy server', () => {
  expect(withParams.length).toBeGreaterThan(8)
  expect(lists.length).toBeGreaterThan(2)
  expect(below.length).toBeGreaterThan(20)
})
