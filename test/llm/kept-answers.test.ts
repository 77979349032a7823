import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type { ModelGateway } from '../../gateway/models/server.ts'
import { newId } from '../../lib/ids.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { KeptAnswer } from '../../models/llm/kept-answers.ts'
import { closeLedger, ledgerOf } from '../../models/llm/ledgers.ts'
import { settleLostCalls } from '../../models/llm/lost-calls.ts'
import { makePrices } from '../../models/llm/prices.ts'
import { eventually } from '../support/eventually.ts'
import {
  type Caller,
  makeCaller,
  makeConnector,
  openGateway,
  startGateway,
} from '../support/model-gateway.ts'
import { said, text } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider, type Treatment } from '../support/model-provider/server.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// A call of a workflow's run that is repeated is paid for once: the gateway keeps its answer for a day.

/** Holds the answers for a model until the test lets them go. */
const gates = new Map<string, PromiseWithResolvers<void>>()
function gateOf(model: string): PromiseWithResolvers<void> {
  const gate = gates.get(model) ?? Promise.withResolvers<void>()
  gates.set(model, gate)
  return gate
}
const never = new Promise<never>(() => {})
/** How the provider treats a model, by the beginning of its name. */
const treatments: Record<string, (count: number, model: string) => Treatment> = {
  held: (_, model) => ({ waits: { after: 3, for: gateOf(model).promise } }),
  hangs: (count) => (count === 1 ? { waits: { after: 3, for: never } } : {}),
  fails: (count) => (count <= 2 ? { status: 500 } : {}), // the gateway asks twice
  forbids: (count) => (count === 1 ? { status: 403 } : {}),
  breaks: (count) => (count === 1 ? { breaksAfter: 4 } : {}),
}

const whole = said.usage.input + said.usage.output
let tenant: TestTenant
let provider: ModelProvider
let gateway: ModelGateway
let connector: string
let ofAnthropic: string

beforeAll(async () => {
  tenant = await makeTenant()
  provider = await startModelProvider(
    (model, count) => treatments[model.replace(/-.*/, '')]?.(count, model) ?? {},
  )
  gateway = await openGateway([provider.port])
  connector = await makeConnector(tenant.id, provider.base_url)
  ofAnthropic = await makeConnector(tenant.id, provider.base_url, 'anthropic')
})
afterAll(async () => {
  for (const gate of gates.values()) gate.resolve()
  await gateway.close()
  await provider.close()
})

const run = (connector_id: string | null = connector, budget: number | null = null) =>
  makeCaller(tenant.id, connector_id, { budget, purpose: { kind: 'run', id: newId() } })

interface Asking {
  path?: string
  key?: string
  at?: { port: number }
  signal?: AbortSignal
}
/** Begins a call; the answer is here when its head is. */
const begin = (
  by: Caller,
  body: Record<string, unknown>,
  { path = '/v1/chat/completions', key = 'summarize/-/1', at = gateway, signal }: Asking = {},
): Promise<Response> =>
  fetch(`http://127.0.0.1:${at.port}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${by.token}`,
      'content-type': 'application/json',
      ...(key && { 'x-keelson-call': key }),
    },
    body: JSON.stringify(body),
    ...(signal && { signal }),
  })
async function ask(by: Caller, body: Record<string, unknown>, asking: Asking = {}) {
  const answer = await begin(by, body, asking)
  const { status, headers } = answer
  return {
    status,
    type: headers.get('content-type'),
    from: headers.get('x-keelson-answer') ?? 'provider',
    text: await answer.text(),
  }
}
const chat = (model: string, more: object = {}) => ({
  model,
  max_tokens: 50,
  messages: [{ role: 'user', content: 'a question that nobody else asks' }],
  ...more,
})
const records = async (by: Caller, count: number) =>
  (await by.calls(count)).map(({ status, code, input_tokens, output_tokens, reserved_tokens, attempts }) => ({
    status,
    code,
    took: input_tokens + output_tokens,
    reserved: reserved_tokens > 0,
    attempts,
  }))
const paid = { status: 'succeeded', code: null, took: whole, reserved: true, attempts: 1 }
const kept = { status: 'succeeded', code: 'kept', took: 0, reserved: false, attempts: 0 }
const tokens = async (by: Caller) => (await ledgerOf(tenant.id, by.purpose))?.tokens

describe('a call of a run that is repeated', () => {
  const kinds = [
    ['a chat', '/v1/chat/completions', {}],
    ['a stream of a chat', '/v1/chat/completions', { stream: true }],
    ['a stream of a response', '/v1/responses', { stream: true, input: 'hello' }],
    ['a stream of a message', '/v1/messages', { stream: true }],
    ['a message', '/v1/messages', {}],
  ] as const
  test.each(kinds)('gets the same answer and is paid for once: %s', async (kind, path, more) => {
    const by = await run(path === '/v1/messages' ? ofAnthropic : connector)
    const body = chat(`once-${kind}`, more)
    const first = await ask(by, body, { path })
    const second = await ask(by, body, { path })
    expect(first).toMatchObject({ status: 200, from: 'provider', text: expect.stringContaining('Three') })
    expect(second).toEqual({ ...first, from: 'kept' })
    expect(provider.askedFor(body.model)).toHaveLength(1)
    expect(await records(by, 2)).toEqual([paid, kept])
    expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens: whole, open: {} })
  })

  test('to a model of the platform’s own, too', async () => {
    const by = await run(null)
    const body = { model: 'all-MiniLM-L6-v2-int8', input: 'hello' }
    const path = '/v1/embeddings'
    const first = await ask(by, body, { path })
    expect(await ask(by, body, { path })).toEqual({ ...first, from: 'kept' })
    const [one, other] = await records(by, 2)
    expect([one?.took, other]).toEqual([await tokens(by), kept])
  })

  test('while the first is under way waits for its answer', async () => {
    const by = await run()
    const body = chat('held-twice', { stream: true })
    const all = [1, 2, 3].map(() => ask(by, body))
    await eventually(
      async () => (await KeptAnswer.countDocuments({ tenant_id: tenant.id, run_id: by.purpose.id })) === 1,
    )
    await eventually(() => provider.askedFor(body.model).length === 1)
    gateOf(body.model).resolve()
    const answers = await Promise.all(all)
    expect(new Set(answers.map((one) => one.text)).size).toBe(1)
    expect(answers.map(({ from }) => from).toSorted()).toEqual(['kept', 'kept', 'provider'])
    expect(provider.askedFor(body.model)).toHaveLength(1)
    expect(await records(by, 3)).toEqual([paid, kept, kept])
  })

  test('gets all of a stream whose first caller hung up', async () => {
    const by = await run()
    const body = chat('held-left', { stream: true })
    const stop = new AbortController()
    const first = await begin(by, body, { signal: stop.signal })
    await first.body?.getReader().read()
    stop.abort()
    const second = ask(by, body)
    gateOf(body.model).resolve()
    const { text: all } = await second
    for (const piece of [...said.pieces, '[DONE]']) expect(all).toContain(piece)
    expect(provider.askedFor(body.model)).toHaveLength(1)
    expect((await records(by, 2)).map(({ took }) => took)).toEqual([whole, 0])
    expect(await tokens(by)).toBe(whole)
  })

  test('gets a kept answer although the budget is spent, and a new call does not', async () => {
    const by = await run(connector, whole)
    await ask(by, chat('spends'))
    expect(await ask(by, chat('spends'))).toMatchObject({ status: 200, from: 'kept' })
    const other = await ask(by, chat('spends'), { key: 'summarize/-/2' })
    expect([other.status, JSON.parse(other.text)]).toMatchObject([
      403,
      { error: { code: 'budget_exceeded' } },
    ])
    expect((await records(by, 3)).map(({ status }) => status)).toEqual(['succeeded', 'succeeded', 'refused'])
    expect(await tokens(by)).toBe(whole)
  })

  test('is refused once the run has ended', async () => {
    const by = await run()
    await ask(by, chat('ended'))
    await closeLedger(tenant.id, by.purpose)
    expect((await ask(by, chat('ended'))).status).toBe(401)
  })

  test('pays again when the answer has expired', async () => {
    const by = await run()
    await ask(by, chat('expires'))
    const of = { tenant_id: tenant.id, run_id: by.purpose.id }
    const [one] = await KeptAnswer.find(of).lean()
    expect((one?.expires_at.getTime() ?? 0) - Date.now()).toBeGreaterThan(23 * 3_600_000)
    await KeptAnswer.updateMany(of, { $set: { expires_at: new Date() } })
    expect(await ask(by, chat('expires'))).toMatchObject({ status: 200, from: 'provider' })
    expect(await ask(by, chat('expires'))).toMatchObject({ status: 200, from: 'kept' })
    expect(provider.askedFor('expires')).toHaveLength(2)
  })
})

describe('a kept answer is not given to', () => {
  test('another run', async () => {
    await ask(await run(), chat('of-run'))
    expect(await ask(await run(), chat('of-run'))).toMatchObject({ status: 200, from: 'provider' })
    expect(provider.askedFor('of-run')).toHaveLength(2)
  })

  test('another tenant, whose run has the same id', async () => {
    const by = await run()
    await ask(by, chat('of-tenant'))
    const other = await makeTenant()
    const { purpose } = by
    const stranger = await makeCaller(other.id, await makeConnector(other.id, provider.base_url), { purpose })
    expect(await ask(stranger, chat('of-tenant'))).toMatchObject({ status: 200, from: 'provider' })
    expect(provider.askedFor('of-tenant')).toHaveLength(2)
  })

  test('a call by another connector', async () => {
    const by = await run()
    await ask(by, chat('of-connector'))
    const second = await makeConnector(tenant.id, provider.base_url)
    const other = await makeCaller(tenant.id, second, { purpose: by.purpose })
    expect(await ask(other, chat('of-connector'))).toMatchObject({ status: 200, from: 'provider' })
  })

  test.each([
    ['another key', {}, { key: 'summarize/-/2' }],
    ['another body', { seed: 1 }, {}],
    ['another path', {}, { path: '/v1/responses' }],
    ['another query', {}, { path: '/v1/chat/completions?a=b' }],
    ['no key', {}, { key: '' }],
  ])('a call with %s', async (what, more, asking: Asking) => {
    const by = await run()
    const model = `other-${what}`
    await ask(by, chat(model))
    expect(await ask(by, chat(model, more), asking)).toMatchObject({ status: 200, from: 'provider' })
    expect(provider.askedFor(model)).toHaveLength(2)
    expect(await records(by, 2)).toEqual([paid, paid])
  })
})

describe('a failure is not kept', () => {
  test.each([
    ['fails-1', {}, 500],
    ['fails-2', { stream: true }, 500],
    ['forbids-1', {}, 403],
  ])('an error of the provider (%s)', async (model, more, status) => {
    const by = await run()
    expect((await ask(by, chat(model, more))).status).toBe(status)
    expect(await ask(by, chat(model, more))).toMatchObject({ status: 200, from: 'provider' })
    expect(await ask(by, chat(model, more))).toMatchObject({ status: 200, from: 'kept' })
    // A provider that knows a request by its key would answer it with the failure again.
    expect(provider.billedFor(model)).toBe(provider.askedFor(model).length)
  })

  test('a stream that broke off', async () => {
    const by = await run()
    const body = chat('breaks-1', { stream: true })
    await expect(ask(by, body)).rejects.toThrow()
    expect(await ask(by, body)).toMatchObject({ status: 200, from: 'provider' })
    expect((await records(by, 2)).map(({ status }) => status)).toEqual(['failed', 'succeeded'])
  })
})

test('a gateway that is killed in a call leaves it to the next, whose request the provider can tell, and both are in the ledger', async () => {
  const killed = await startGateway({ KEELSON_OUTBOUND_ALLOWED: `127.0.0.1:${provider.port}` })
  const by = await run()
  const body = chat('hangs-1', { stream: true })
  const first = await begin(by, body, { at: killed })
  await killed.kill()
  await expect(first.text()).rejects.toThrow()
  const open = await LlmCall.findOne({ tenant_id: tenant.id, purpose_id: by.purpose.id }).lean()
  // It may still live: both wait for its lease. Then one of them takes over.
  const repeated = [ask(by, body), ask(by, body)]
  const of = { tenant_id: tenant.id, run_id: by.purpose.id }
  expect(await KeptAnswer.findOne(of).lean()).toMatchObject({ state: 'open', call_id: open?._id })
  expect(provider.askedFor(body.model)).toHaveLength(1)
  await KeptAnswer.updateMany(of, { $set: { lease_until: new Date() } })
  const froms = (await Promise.all(repeated)).map(({ from }) => from)
  expect(froms.toSorted()).toEqual(['kept', 'provider'])
  expect(provider.askedFor(body.model)).toHaveLength(2)
  expect(provider.billedFor(body.model)).toBe(1)
  await LlmCall.updateOne(
    { tenant_id: tenant.id, _id: open?._id ?? '' },
    { $set: { lease_until: new Date() } },
  )
  await settleLostCalls(makePrices(null))
  const calls = await by.calls(3)
  expect(calls.map(({ status, code }) => [status, code])).toEqual([
    ['lost', null],
    ['succeeded', null],
    ['succeeded', 'kept'],
  ])
  const reserved = open?.reserved_tokens ?? 0
  expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens: whole + reserved, open: {} })
})

describe('the key of a call', () => {
  test('is refused of any caller but a run', async () => {
    const by = await makeCaller(tenant.id, connector)
    const { status, text: body } = await ask(by, chat('of-session'))
    expect([status, JSON.parse(body)]).toMatchObject([403, { error: { code: 'call_key_not_allowed' } }])
    const anthropic = await makeCaller(tenant.id, ofAnthropic)
    const other = await ask(anthropic, chat('of-session'), { path: '/v1/messages' })
    expect([other.status, JSON.parse(other.text)]).toMatchObject([
      403,
      { type: 'error', error: { type: 'call_key_not_allowed' } },
    ])
    expect(provider.askedFor('of-session')).toEqual([])
  })

  test.each(['a b', 'x'.repeat(201), 'a,b'])('has a bounded form: not “%s”', async (key) => {
    const { status, text: body } = await ask(await run(), chat('malformed'), { key })
    expect([status, JSON.parse(body)]).toMatchObject([400, { error: { code: 'invalid_request' } }])
    expect(provider.askedFor('malformed')).toEqual([])
  })

  test('does not go on to the provider', async () => {
    await ask(await run(), chat('headers'))
    expect(provider.askedFor('headers')[0]?.headers).not.toHaveProperty('x-keelson-call')
  })
})

test('nothing is kept of a call without a key', async () => {
  const by = await run()
  await ask(by, chat('plain'), { key: '' })
  expect(await KeptAnswer.countDocuments({ tenant_id: tenant.id, run_id: by.purpose.id })).toBe(0)
})

test('a kept answer is sealed', async () => {
  const by = await run()
  await ask(by, chat('sealed'))
  const [one] = await KeptAnswer.find({ tenant_id: tenant.id, run_id: by.purpose.id }).lean()
  expect(one?.answer_sealed).toMatch(/^[\w-]+\.[\w-]+$/)
  expect(JSON.stringify(one)).not.toContain(text)
})
