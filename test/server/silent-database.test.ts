import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { type Answer, ask, sleeper } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { type OwnApi, startOwnApi } from '../support/own-api.ts'
import { Dice } from '../support/random.ts'
import { sampled, seed } from '../support/sampled.ts'
import { openSilentProxy, type SilentProxy } from '../support/silent-proxy.ts'
import { stackSettings } from '../support/stack.ts'
import { makeTenant } from '../support/tenants.ts'

// An API process whose way to MongoDB drops everything, and closes nothing. Without its heartbeat, a read had no answer after
// 15 s, and a create after 40 s.

let api: OwnApi
let proxy: SilentProxy

beforeAll(async () => {
  const url = new URL(stackSettings().KEELSON_MONGODB_URL)
  proxy = await openSilentProxy(Number(url.port))
  url.port = String(proxy.port)
  // Else the driver goes to the address by which the replica set knows its member.
  url.searchParams.set('directConnection', 'true')
  api = await startOwnApi({ KEELSON_MONGODB_URL: url.href })
})
afterAll(async () => {
  proxy.pass()
  await api.stop()
  await proxy.close()
})

const containers = '/api/v1/containers'
const unavailable = { status: 503, body: { code: 'unavailable' } }

/** A client that gives up after 15 s, as one did. The promise is 5 s; the rest is for a busy machine. */
async function timed(
  token: string | undefined,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer & { ms: number }> {
  const begun = performance.now()
  const signal = AbortSignal.timeout(15_000)
  const answer = await ask(method, `${api.url}${path}`, { token, body, headers, signal })
  return { ...answer, ms: Math.round(performance.now() - begun) }
}

test('answers 503 while MongoDB is silent, to reads and accepted operations, and serves all again afterwards', async () => {
  const tenant = await makeTenant()
  const { token } = tenant.owner
  const keys = Array.from({ length: 6 }, () => newId())
  const bodies = keys.map(() => sleeper())
  const create = (i: number) =>
    timed(token, 'POST', containers, bodies[i], { 'idempotency-key': keys[i] as string })
  const some = () =>
    Promise.all([
      timed(token, 'GET', containers),
      timed(token, 'GET', `/api/v1/operations/${newId()}?wait=30`),
      timed(token, 'GET', '/api/v1/account'),
      timed(undefined, 'POST', '/api/v1/auth/login', { email: 'nobody@example.com', password: 'planted-no' }),
      ...keys.map((_, i) => create(i)),
    ])
  expect(await timed(token, 'GET', containers)).toMatchObject({ status: 200 })

  proxy.silence()
  for (const when of ['sent when it falls silent', 'sent later']) {
    const answers = await some()
    console.log(`${when}: 503 after ${answers.map(({ ms }) => ms).join(', ')} ms`)
    for (const answer of answers) {
      expect(answer).toMatchObject(unavailable)
      expect(answer.headers.get('retry-after')).toMatch(/^\d+$/)
    }
  }

  proxy.pass()
  const begun = performance.now()
  await eventually(async () => (await timed(token, 'GET', containers)).status === 200)
  console.log(`served again after ${Math.round(performance.now() - begun)} ms`)
  // What the silence left open, MongoDB ends within seconds: a client repeats its requests until then.
  await eventually(async () => {
    const answers = await Promise.all(keys.map((_, i) => create(i)))
    return answers.every(({ status }) => status === 202)
  })
  expect((await timed(token, 'GET', containers)).body).toMatchObject({ total: keys.length })
})

// Where in the creates of some containers MongoDB falls silent: after so many pieces of what the API sends.
const moments = [2, 5, 9, 14, 20, 27, 35, 44, 54, 65]

test.each(sampled(moments, 2))(
  'a create that MongoDB’s silence interrupts after %i messages happens once or not at all, and its key finds it',
  async (most) => {
    const tenant = await makeTenant()
    const { token } = tenant.owner
    const keys = Array.from({ length: 5 }, () => newId())
    const bodies = keys.map(() => sleeper())
    const createAll = () =>
      Promise.all(
        keys.map((key, i) => timed(token, 'POST', containers, bodies[i], { 'idempotency-key': key })),
      )

    const silent = proxy.silenceAfter(most - new Dice(seed ^ most).number(2))
    const first = await createAll()
    await silent
    console.log(`answers: ${first.map(({ status, ms }) => `${status} after ${ms} ms`).join(', ')}`)
    for (const answer of first) expect([202, 503]).toContain(answer.status)

    proxy.pass()
    const again = await eventually(async () => {
      const answers = await createAll()
      return answers.every(({ status }) => status === 202) && answers
    })
    for (const [i, { status, body }] of first.entries())
      if (status === 202) expect(again[i]?.body).toEqual(body)
    const { body: list } = await timed(token, 'GET', containers)
    const items = list['items'] as { id: string }[]
    expect(items.map(({ id }) => id).toSorted()).toEqual(
      again.map(({ body }) => String(body['id'])).toSorted(),
    )
  },
)
