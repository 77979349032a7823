import { beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { type Answer, type Json, sleeper } from '../support/client.ts'
import { refusing } from '../support/refusals.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Bad input gets the right problem document, and changes nothing.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})

const path = '/api/v1/containers'
const refused = refusing(() => tenant)
type Headers = Record<string, string>
const ask = (method: string, url: string, body?: unknown, headers?: Headers): Promise<Answer> =>
  refused(() => tenant.owner.ask(method, url, body, headers))
const create = (body: unknown, headers?: Headers): Promise<Answer> => ask('POST', path, body, headers)

test.each(['{', '{"name": ', 'not json', '{"name": "a",}', '\u0000'])('%j is not JSON: 400', async (body) => {
  expect(await create(body)).toMatchObject({ status: 400, body: { code: 'invalid_json' } })
})

test.each([[[]], ['"text"'], ['null'], ['17']])('the body %j is no object: 422', async (body) => {
  expect(await create(body)).toMatchObject({ status: 422, body: { code: 'invalid_input' } })
})

test('a problem document points to every mistake', async () => {
  const { status, body } = await create({
    ...sleeper(),
    name: 'Not A Name',
    cpu_cores: 'half',
    memory_mib: 1.5,
    restart_policy: 'sometimes',
    ports: [{ container_port: 80 }, { container_port: 99_999 }],
    tags: { 'a/b~c': 5 },
    comand: ['sleep'],
  })
  expect([status, body['code']]).toEqual([422, 'invalid_input'])
  const pointers = (body['errors'] as { pointer: string }[]).map(({ pointer }) => pointer)
  expect(pointers.toSorted()).toEqual([
    '/comand',
    '/cpu_cores',
    '/memory_mib',
    '/name',
    '/ports/1/container_port',
    '/restart_policy',
    '/tags/a~1b~0c',
  ])
})

test.each([
  ['a name', { name: undefined }],
  ['an image', { image: undefined }],
  ['an image reference', { image: 'not an image' }],
  ['a port published once', { ports: [{ container_port: 80 }, { container_port: 80 }] }],
  ['64 KiB of arguments at most', { command: Array.from({ length: 17 }, () => 'x'.repeat(4000)) }],
  [
    '256 KiB of config vars at most',
    { config_vars: Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`V${i}`, 'x'.repeat(30_000)])) },
  ],
  ['names of config vars', { config_vars: { 'NOT-A-NAME': 'x' } }],
  ['50 tags at most', { tags: Object.fromEntries(Array.from({ length: 51 }, (_, i) => [`t${i}`, 'x'])) }],
  ['5 s between two health checks', { health_check: { command: ['true'], interval_sec: 4 } }],
  ['at least 0.1 cpu cores', { cpu_cores: 0.01 }],
  ['hundredths of a core', { cpu_cores: 0.123 }],
  ['room for files', { disk_gib: 0 }],
  ['1024 GiB at most', { disk_gib: 1025 }],
  ['an object of the prototype’s making', JSON.parse('{"__proto__": {"name": "x"}}') as Json],
])('a body without %s: 422', async (_, wrong) => {
  expect(await create(sleeper(wrong))).toMatchObject({ status: 422 })
})

test('an unknown field is refused, also where the body has no fields', async () => {
  expect(await create(sleeper({ colour: 'red' }))).toMatchObject({
    status: 422,
    body: { errors: [{ pointer: '/colour' }] },
  })
  expect(await ask('POST', `${path}/${newId()}/start`, { force: true })).toMatchObject({
    status: 422,
    body: { errors: [{ pointer: '/force' }] },
  })
  expect(await ask('GET', `${path}/${newId()}?verbose=true`)).toMatchObject({
    status: 400,
    body: { errors: [{ pointer: '/verbose' }] },
  })
})

test('a body above 1 MiB: 413, with or without a declared length', async () => {
  const large = JSON.stringify(sleeper({ config_vars: { LARGE: 'x'.repeat(2 ** 20) } }))
  expect(await create(large)).toMatchObject({ status: 413, body: { code: 'too_large' } })
  const chunks = new ReadableStream({
    start(controller) {
      controller.enqueue(Buffer.from(large))
      controller.close()
    },
  })
  const answer = await fetch(new URL(path, facts().api_url), {
    method: 'POST',
    headers: { authorization: `Bearer ${tenant.owner.token}`, 'content-type': 'application/json' },
    body: chunks,
    duplex: 'half',
  })
  expect(answer.status).toBe(413)
})

test.each([
  'text/plain',
  'application/x-www-form-urlencoded',
  'application/xml',
  'multipart/form-data; boundary=x',
])('a body of %s: 415', async (type) => {
  const answer = await create(JSON.stringify(sleeper()), { 'content-type': type })
  expect(answer).toMatchObject({ status: 415, body: { code: 'unsupported_media_type' } })
})

test.each(['1', 'null', '..%2f..', '00000000-0000-0000-0000-00000000000g', `${newId()}x`, '%00', '$ne'])(
  'the unknown id %s: 404',
  async (id) => {
    for (const [method, verb] of [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/start'],
      ['GET', '/logs'],
    ] as const)
      expect(await ask(method, `${path}/${id}${verb}`)).toMatchObject({ status: 404 })
  },
)

test('a broken escape in the path: 400', async () => {
  expect(await ask('GET', `${path}/%zz`)).toMatchObject({ status: 400 })
})

test('an unknown path: 404', async () => {
  for (const unknown of ['/api/v1/nothing', '/api/v2/containers', '/', '/api/v1'])
    expect(await ask('GET', unknown)).toMatchObject({ status: 404 })
})

test('an unknown method: 405, with the allowed methods', async () => {
  const patch = await ask('PATCH', path, {})
  expect([patch.status, patch.headers.get('allow')]).toEqual([405, 'GET, HEAD, POST, OPTIONS'])
  const post = await ask('POST', `${path}/${newId()}`, {})
  expect([post.status, post.headers.get('allow')]).toEqual([405, 'GET, HEAD, PUT, DELETE, OPTIONS'])
})
