import { randomInt } from 'node:crypto'
import { request } from 'node:http'
import { describe, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { type Limiter, makeLimiter, makeSharedLimiter } from '../../api/limits.ts'
import { toProblem } from '../../api/problems.ts'
import { newId } from '../../lib/ids.ts'
import { maxTimeMS, tenantField } from '../../models/tenant-scope.ts'
import { ask, type Client } from '../support/client.ts'
import { endlessOperation } from '../support/endless.ts'
import { eventually } from '../support/eventually.ts'
import { startOwnApi } from '../support/own-api.ts'
import { facts } from '../support/stack.ts'
import { makeTenant } from '../support/tenants.ts'

/** Sends `count` requests with this key; returns how many pass, and the last headers and refusal. */
async function use(limiter: Limiter, key: string, count: number) {
  const headers: Record<string, unknown> = {}
  const response = { setHeader: (name: string, value: unknown) => (headers[name] = value) }
  let passed = 0
  let refusal: unknown
  for (let i = 0; i < count; i++) {
    try {
      await limiter(key, response as never)
      passed++
    } catch (error) {
      refusal = error
    }
  }
  return { passed, headers, refusal }
}

const tooMany = { status: 429, headers: { 'Retry-After': expect.stringMatching(/^[1-9]\d*$/) } }

describe('a limit', () => {
  test('passes the configured number of requests for each key, and says what is left', async () => {
    const limiter = makeLimiter(3, 600)
    expect(await use(limiter, 'a', 1)).toMatchObject({
      passed: 1,
      headers: { 'RateLimit-Limit': 3, 'RateLimit-Remaining': 2, 'RateLimit-Reset': expect.any(Number) },
    })
    expect(await use(limiter, 'a', 5)).toMatchObject({
      passed: 2,
      refusal: tooMany,
      headers: { 'RateLimit-Remaining': 0 },
    })
    expect(await use(limiter, 'b', 1)).toMatchObject({ passed: 1 })
  })

  test('of attempts is shared by all replicas', async () => {
    const name = newId()
    const [one, other] = [makeSharedLimiter(name, 5, 600), makeSharedLimiter(name, 5, 600)]
    expect((await use(one, 'a', 3)).passed).toBe(3)
    expect(await use(other, 'a', 3)).toMatchObject({ passed: 2, refusal: tooMany })
    expect(await use(one, 'a', 2)).toMatchObject({ passed: 0, refusal: tooMany })
    expect((await use(one, 'b', 1)).passed).toBe(1)
  })
})

test('the waits of one tenant are limited over all its callers, and leave those of others alone', async () => {
  const api = await startOwnApi({ KEELSON_OPEN_PER_TENANT: '1' })
  try {
    const [tenant, other] = [await makeTenant(), await makeTenant()]
    // A request that is no handshake keeps no place when it is over, though its connection stays.
    for (let asked = 0; asked < 3; asked++)
      expect(
        await ask('GET', `${api.url}/api/v1/containers/${newId()}/console`, { token: tenant.owner.token }),
      ).toMatchObject({ status: 404 })
    const ids = await Promise.all([tenant, other].map(({ id }) => endlessOperation(id)))
    const gone = new AbortController()
    const wait = (client: Client, id = ids[0], signal: AbortSignal | null = gone.signal) =>
      ask('GET', `${api.url}/api/v1/operations/${id}?wait=60`, { token: client.token, signal })
    const [second, viewer] = [await tenant.user('viewer'), await tenant.user('viewer')]
    const callers = [tenant.owner, second]
    const waiting = Array.from({ length: 11 }, (_, i) => wait(callers[i % 2] ?? second).catch(() => null))
    const refused = { status: 429, body: { code: 'too_many_requests' } }
    expect(await Promise.race(waiting)).toMatchObject(refused)
    expect(await wait(viewer)).toMatchObject(refused)
    await expect(wait(other.owner, ids[1], AbortSignal.timeout(500))).rejects.toThrow('timeout')
    gone.abort()
    await Promise.all(waiting)
    await eventually(async () => !(await wait(viewer, ids[0], AbortSignal.timeout(500)).catch(() => null)))
  } finally {
    await api.stop()
  }
})

test('reads of a tenant’s documents end in the database after a time', async () => {
  const { id } = await makeTenant()
  const scoped = Object.values(mongoose.models).filter(({ schema }) => tenantField(schema) === 'tenant_id')
  expect(scoped.length).toBeGreaterThan(20)
  const bounds = scoped.map(async (model) => {
    const query = model.find({ tenant_id: id })
    await query
    return [model.modelName, query.getOptions()['maxTimeMS']]
  })
  const without = (await Promise.all(bounds)).filter(([, ms]) => ms !== maxTimeMS)
  // Records of the platform's own, and one record each for a caller, by a key.
  expect(without.map(([name]) => String(name)).toSorted((a, b) => a.localeCompare(b))).toEqual([
    'EncryptionKey',
    'Host',
    'IdempotencyKey',
    'Session',
    'Tenant',
  ])
  const expired = new mongoose.mongo.MongoServerError({ code: 50, message: 'operation exceeded time limit' })
  expect(toProblem(expired)).toMatchObject({ status: 503, code: 'took_too_long' })
})

/** Sends a request from its own address, so that the limits of other tests do not count it. */
const askFrom = (
  localAddress: string,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body = '',
): Promise<{ status: number; headers: Record<string, unknown> }> =>
  new Promise((resolve, reject) => {
    const sent = request(new URL(path, facts().api_url), { method, localAddress, headers }, (answer) => {
      answer.resume().once('end', () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers }))
    })
    sent.once('error', reject).end(body)
  })

const login = (address: string) =>
  askFrom(address, 'POST', '/api/v1/auth/login', { 'content-type': 'application/json' }, '{}')
const askAsNobody = (address: string) =>
  askFrom(address, 'GET', '/api/v1/account', { authorization: `Bearer ${newId()}` })

/** A random address that no earlier run has used up. */
const anyAddress = () => `127.${randomInt(1, 255)}.${randomInt(255)}.${randomInt(1, 255)}`

const left = ({ headers }: { headers: Record<string, unknown> }) => Number(headers['ratelimit-remaining'])

describe('requests', () => {
  test('are counted by caller, from all addresses together', async () => {
    const { owner } = await makeTenant()
    const headers = { authorization: `Bearer ${owner.token}` }
    await eventually(async () => {
      const first = await askFrom('127.0.0.98', 'GET', '/api/v1/account', headers)
      const second = await askFrom('127.0.0.99', 'GET', '/api/v1/account', headers)
      expect(first.headers['ratelimit-limit']).toBe('100000')
      return left(second) === left(first) - 1 // unless a new window began between them
    })
  })

  test('with made-up tokens are counted by address', async () => {
    await eventually(async () => {
      const [first, second] = [await askAsNobody('127.0.0.97'), await askAsNobody('127.0.0.97')]
      expect(second.status).toBe(401)
      return left(second) === left(first) - 1
    })
  })

  test('to log in are refused after too many from one address', async () => {
    const address = anyAddress()
    const answers = []
    for (let i = 0; i < 610; i++) answers.push(await login(address)) // two windows' worth, in case one ends meanwhile
    const refused = answers.filter(({ status }) => status === 429)
    expect(answers[0]).toMatchObject({ status: 422, headers: { 'ratelimit-limit': '300' } })
    expect(refused.length).toBeGreaterThan(0)
    expect(refused[0]?.headers).toMatchObject({
      'ratelimit-remaining': '0',
      'retry-after': expect.stringMatching(/^[1-9]\d*$/),
    })
  })

  test.each(['deliveries/{}/redeliver', 'test'])('to send an event by %s are limited', async (last) => {
    const [address, path] = [anyAddress(), `/api/v1/deploy-servers/${newId()}/event-subscriptions/${newId()}`]
    const answers = []
    for (let i = 0; i < 122; i++)
      answers.push(await askFrom(address, 'POST', `${path}/${last.replace('{}', newId())}`, {}))
    expect(answers[0]).toMatchObject({ status: 401, headers: { 'ratelimit-limit': '60' } })
    expect(answers.some(({ status }) => status === 429)).toBe(true)
  })
})
