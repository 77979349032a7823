import { beforeAll, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { openApiDocument } from '../../api/openapi.ts'
import { isSocket, isStream, successOf } from '../../api/operation.ts'
import { ProblemView } from '../../api/problems.ts'
import { isLong } from '../support/long.ts'
import { badRequests } from '../support/bad-requests.ts'
import { type Answer, ask } from '../support/client.ts'
import { type Belongings, idsFor, makeOneOfEach } from '../support/belongings.ts'
import { declared } from '../support/declared.ts'
import { seed } from '../support/sampled.ts'
import { makeOperator, makeTenant, type TestTenant } from '../support/tenants.ts'

// Any request gets an answer that the document declares: no 5xx, no undeclared status, no hang.

const requests = isLong ? 12_000 : 2_000
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
beforeAll(async () => {
  // A small quota beside what its deploy server takes, so that random valid requests do not create many resources.
  tenant = await makeTenant({ max_cpu_cores: 5, max_ram_gib: 2 })
  belongings = await makeOneOfEach(tenant)
  operator = (await makeOperator()).token
})

let sent = 0
const perOperation = Math.ceil(requests / operations.length)

test.each(operations)(
  '$name answers as the document declares',
  async (operation) => {
    const { permission } = operation
    const isPlatform = typeof permission === 'string' && permission.startsWith('platform:')
    const ids = idsFor(belongings, operation.path) ?? {}
    const batch = fc.sample(badRequests(operation, ids), { numRuns: perOperation, seed })
    const streams = isStream(successOf(operation).body)
    let token = isPlatform ? operator : (await tenant.user('owner')).token
    for (const request of batch) {
      const { method, url, headers, body } = request
      const signal = AbortSignal.timeout(hangMs)
      // A stream need not end.
      const answer = await ask(method, url, { token, body, headers, signal, headOnly: streams })
      sent++
      const wrong = faultOf(answer, operation)
      if (wrong)
        throw new Error(`${wrong} (seed ${seed})\n${JSON.stringify(request)}\n${JSON.stringify(answer.body)}`)
      // A valid request may have ended the session.
      if (answer.status === 401 && !isPlatform) token = (await tenant.user('owner')).token
    }
  },
  600_000,
)

test('the fuzzing has sent enough requests', () => {
  console.log(`${sent} requests, seed ${seed}`)
  expect(sent).toBeGreaterThanOrEqual(requests)
})

/** The difference between an answer and its declaration; null if there is none. */
function faultOf({ status, headers, body }: Answer, operation: (typeof operations)[number]): string | null {
  if (status >= 500) return `${status}`
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

function mismatch(
  schema: { safeParse(value: unknown): { success: boolean; error?: unknown } },
  body: unknown,
) {
  const parsed = schema.safeParse(body)
  return parsed.success ? null : `the body is not as declared: ${String(parsed.error)}`
}
