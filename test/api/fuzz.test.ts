import { beforeAll, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { openApiDocument } from '../../api/openapi.ts'
import { isSocket, isStream, successOf } from '../../api/operation.ts'
import { ProblemView } from '../../api/problems.ts'
import { mapAtOnce } from '../../lib/queue.ts'
import { isLong } from '../support/long.ts'
import { badRequests, type FuzzedRequest } from '../support/bad-requests.ts'
import { type Answer, ask } from '../support/client.ts'
import { type Belongings, idsFor, makeOneOfEach } from '../support/belongings.ts'
import { declared } from '../support/declared.ts'
import { documentsOf, idsIn } from '../support/documents.ts'
import { seed } from '../support/sampled.ts'
import { makeMachine } from '../support/api-clients.ts'
import { makeOperator, makeTenant, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Any request gets an answer that the document declares: no 5xx, no undeclared status, no hang. A caller who knows another
// tenant's ids, and sends them wherever a text goes, changes nothing of that tenant and sees nothing of it.

// KEELSON_TEST_FUZZ: another number.
const requests = Number(process.env['KEELSON_TEST_FUZZ'] ?? (isLong ? 100_000 : 2_000))
const atOnce = isLong ? 8 : 1
/** One after another, they would take as long as a test may on a busy machine. */
const listsAtOnce = 4
// Longer than the longest allowed wait (`?wait=60`).
const hangMs = 90_000

const operations = declared.filter(({ path }) => !path.startsWith('/internal/'))
const document = openApiDocument(operations, 'http://127.0.0.1')
type Described = { responses: Record<string, { $ref?: string; content?: object }> }
const paths = document['paths'] as Record<string, Record<string, Described>>
const shared = (document['components'] as { responses: Described['responses'] }).responses

let tenant: TestTenant
let operator: string
let belongings: Belongings

/** The other tenant, whose ids are sent. */
let other: TestTenant
let others: Belongings
/** All ids that a request may have. */
let sentIds: string[]
/** Ids of the other tenant that no request has, so that no answer may have one. */
let hidden: Set<string>
let before: Map<string, string>

beforeAll(async () => {
  // A small quota beside what its deploy server takes, so that random valid requests do not create many resources.
  tenant = await makeTenant({ max_cpu_cores: 5, max_ram_gib: 2 })
  belongings = await makeOneOfEach(tenant)
  operator = (await makeOperator()).token
  other = await makeTenant()
  others = isLong ? await makeOneOfEach(other) : await makeAFew(other)
  before = await documentsOf(other.id)
  sentIds = [other.id, ...Object.values(others).flatMap((ids) => Object.values(ids))].flatMap(idsIn)
  const common = idsIn([...(await documentsOf(tenant.id)).values()].join())
  hidden = new Set(idsIn([...before].join()))
  for (const id of [...sentIds, ...common]) hidden.delete(id)
})

/** What is made in a moment: a whole set takes as long as all requests of the short form. */
async function makeAFew(of: TestTenant): Promise<Belongings> {
  const vpc = await makeVpc(of)
  const subnet = await makeSubnet(of, vpc.id)
  const { id, operation } = await of.containers.create({ start: false, nics: [{ subnet_id: subnet.id }] })
  await operation.success()
  const client = await makeMachine(of.owner, ['containers:read'])
  const user = await (await of.user('viewer')).get<{ id: string }>('/api/v1/account')
  return {
    containers: { id },
    vpcs: { id: vpc.id },
    subnets: { id: subnet.id },
    users: { id: user.id },
    'api-clients': { id: client.id },
    operations: { id: operation.id },
  }
}

const fieldsOf = ({ query }: (typeof operations)[number]): string[] =>
  Object.keys((query as { shape?: object } | undefined)?.shape ?? {})
const filters = operations
  .filter((operation) => fieldsOf(operation).includes('sort_by'))
  .flatMap((list) => fieldsOf(list).map((field) => ({ path: list.path, field, permission: list.permission })))

// First, because the requests below delete what the lists are of.
test('a list takes each filter that it declares', async () => {
  const failed: string[] = []
  const asked = filters.flatMap((filter) => ['x', '1', 'null', 'true'].map((value) => ({ ...filter, value })))
  await mapAtOnce(asked, listsAtOnce, async ({ path, field, permission, value }) => {
    const isPlatform = typeof permission === 'string' && permission.startsWith('platform:')
    const ids = idsFor(belongings, path) ?? {}
    const at = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => ids[name] ?? '')
    const { status } = await ask('GET', `${at}?${field}=${value}`, {
      token: isPlatform ? operator : tenant.owner.token,
    })
    if (status !== 200 && status !== 400) failed.push(`${status} ${path}?${field}=${value}`)
  })
  expect(filters.length).toBeGreaterThan(100)
  expect(failed).toEqual([])
})

let sent = 0
const perOperation = Math.ceil(requests / operations.length)

test.each(operations)(
  '$name answers as the document declares',
  async (operation) => {
    const { permission } = operation
    const isPlatform = typeof permission === 'string' && permission.startsWith('platform:')
    const ids = idsFor(belongings, operation.path) ?? {}
    // An operator may see and change what is any tenant's.
    const foreign = isPlatform ? undefined : { ids: idsFor(others, operation.path) ?? {}, all: sentIds }
    const batch = fc.sample(badRequests(operation, ids, foreign), { numRuns: perOperation, seed })
    const streams = isStream(successOf(operation).body)
    let token = isPlatform ? operator : (await tenant.user('owner')).token

    async function send(request: FuzzedRequest): Promise<void> {
      const { method, url, headers, body } = request
      const signal = AbortSignal.timeout(hangMs)
      // A stream need not end.
      const answer = await ask(method, url, { token, body, headers, signal, headOnly: streams })
      sent++
      const wrong = faultOf(answer, operation) ?? (isPlatform ? null : foreignIn(answer))
      if (wrong)
        throw new Error(
          `${wrong} (seed ${seed})\n${JSON.stringify(request).slice(0, 4000)}\n${JSON.stringify(answer.body)}`,
        )
      // A valid request may have ended the session.
      if (answer.status === 401 && !isPlatform) token = (await tenant.user('owner')).token
    }
    await mapAtOnce(batch, atOnce, send)
  },
  isLong ? 3_600_000 : 600_000,
)

test('nothing of the other tenant has changed', async () => {
  expect([before.size > 50, hidden.size > 5, sentIds.length > 5]).toEqual([true, true, true])
  const after = await documentsOf(other.id)
  // Its audit has the logins that were refused at its deploy server.
  const logins = [...after]
    .filter(([key, value]) => key.endsWith(' action') && value.includes('/deploy-servers/{id}/login'))
    .map(([key]) => key.replace(/ action$/, ' '))
    .filter((login) => after.get(`${login}outcome`) === '"refused"')
  const all = new Set([...before.keys(), ...after.keys()])
  const changed = [...all].filter(
    (key) => before.get(key) !== after.get(key) && !logins.some((login) => key.startsWith(login)),
  )
  expect(changed.map((key) => [key, before.get(key), after.get(key)])).toEqual([])
})

test('the fuzzing has sent enough requests', () => {
  console.log(`${sent} requests, seed ${seed}`)
  expect(sent).toBeGreaterThanOrEqual(requests)
})

/** The difference between an answer and its declaration; null if there is none. */
function faultOf({ status, headers, body }: Answer, operation: (typeof operations)[number]): string | null {
  // No provider of connectors answers here.
  if (status >= 500 && body['code'] !== 'provider_unavailable') return `${status}`
  const response = paths[operation.path]?.[operation.method.toLowerCase()]?.responses[status]
  if (!response) return `${status} is not declared`
  const declaredAs = response.$ref ? shared[response.$ref.split('/').at(-1) ?? ''] : response
  const type = headers.get('content-type')?.split(';')[0] ?? ''
  const types = Object.keys(declaredAs?.content ?? {})
  if (types.length ? !types.includes(type) : type !== '')
    return `${status} as ${type}, declared as ${types.join()}`
  const { body: schema } = successOf(operation)
  if (status >= 400) return type.endsWith('problem+json') ? mismatch(ProblemView, body) : null
  return schema && !isStream(schema) && !isSocket(schema) ? mismatch(schema, body) : null
}

/** What of the other tenant an answer shows; null if nothing. */
function foreignIn({ headers, body }: Answer): string | null {
  const said = JSON.stringify([...headers, body])
  const told = idsIn(said).find((id) => hidden.has(id))
  if (told) return `it tells ${told} of another tenant`
  // An id that was sent may come back as a name or a tag. As an id, it would be a thing of the other tenant.
  const items = [body, ...(Array.isArray(body['items']) ? (body['items'] as Answer['body'][]) : [])]
  const shown = items
    .flatMap((item) => [item['id'], item['tenant_id']])
    .find((id) => typeof id === 'string' && sentIds.includes(id))
  return typeof shown === 'string' ? `it shows ${shown} of another tenant` : null
}

function mismatch(
  schema: { safeParse(value: unknown): { success: boolean; error?: unknown } },
  body: unknown,
) {
  const parsed = schema.safeParse(body)
  return parsed.success ? null : `the body is not as declared: ${String(parsed.error)}`
}
