import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import OpenAI from 'openai'
import { newId } from '../../lib/ids.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { Ledger, ledgerOf, monthLedgerOf, monthOf } from '../../models/llm/ledgers.ts'
import { settleLostCalls } from '../../models/llm/lost-calls.ts'
import { makePrices } from '../../models/llm/prices.ts'
import { eventually } from '../support/eventually.ts'
import { type Caller, makeCaller, makeConnector, startGateway } from '../support/model-gateway.ts'
import { said } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { platform, startAll } from '../support/platform.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// kill -9 of MongoDB while models answer. Calls begin without waiting for its journal, so it may come back without them:
// no call is lost, none is counted twice, and a budget is no larger than before.

const whole = said.usage.input + said.usage.output
let provider: ModelProvider
let gateway: Awaited<ReturnType<typeof startGateway>>
let tenant: TestTenant
let connector: string
let released: PromiseWithResolvers<void>

beforeAll(async () => {
  provider = await startModelProvider((model) =>
    model === 'held' ? { waits: { after: 1, for: released.promise } } : {},
  )
  gateway = await startGateway({ KEELSON_OUTBOUND_ALLOWED: `127.0.0.1:${provider.port}` })
})
afterAll(async () => {
  await gateway.stop()
  await provider.close()
})
beforeEach(async () => {
  released = Promise.withResolvers()
  tenant = await makeTenant()
  connector = await makeConnector(tenant.id, provider.base_url)
})
afterEach(async () => {
  released.resolve()
  await startAll()
})

const clientOf = (by: Caller, at = gateway) =>
  new OpenAI({ apiKey: by.token, baseURL: `http://127.0.0.1:${at.port}/v1`, maxRetries: 0 })
const messages = [{ role: 'user' as const, content: 'hello' }]
/** Begins streams that the provider holds. Each resolves with its text. */
async function begin(by: Caller, count: number, at = gateway): Promise<Promise<string>[]> {
  const body = { model: 'held', max_tokens: 100, stream: true, messages } as const
  const streams = await Promise.all(
    Array.from({ length: count }, () => clientOf(by, at).chat.completions.create(body)),
  )
  return streams.map(async (stream) => {
    let text = ''
    for await (const { choices } of stream) text += choices[0]?.delta.content ?? ''
    return text
  })
}
const ledgersOf = async (by: Caller) => [
  await ledgerOf(tenant.id, by.purpose),
  await monthLedgerOf(tenant.id, monthOf(new Date())),
]

async function expectMetered(by: Caller, count: number): Promise<void> {
  const calls = await by.calls(count)
  expect(calls).toHaveLength(count)
  for (const call of calls)
    expect(call).toMatchObject({ status: 'succeeded', counted_by: 'provider', provider: 'openai' })
  for (const ledger of await ledgersOf(by)) expect(ledger).toMatchObject({ tokens: count * whole, open: {} })
}

/** What MongoDB is without after a crash, if its journal had nothing of the calls that are under way. */
async function takeAway(by: Caller, records = true): Promise<void> {
  const filter = { tenant_id: tenant.id, purpose_id: by.purpose.id, status: 'open' as const }
  const open = await LlmCall.find(filter).lean()
  for (const { _id, reserved_tokens } of open)
    await Ledger.collection.updateMany(
      { tenant_id: tenant.id, [`open.${_id}`]: { $exists: true } },
      { $inc: { tokens: -reserved_tokens }, $unset: { [`open.${_id}`]: true } },
    )
  if (records) await LlmCall.deleteMany(filter)
}

test('streams that have begun just before a kill of MongoDB are metered once', async () => {
  const by = await makeCaller(tenant.id, connector)
  const streams = await begin(by, 20)
  await platform.kill('mongodb')
  await platform.start('mongodb')
  released.resolve()
  for (const text of await Promise.all(streams)) expect(text).toContain(said.pieces[0])
  await expectMetered(by, 20)
})

test('calls that end while MongoDB is down are metered once it is back', async () => {
  const by = await makeCaller(tenant.id, connector)
  const streams = await begin(by, 5)
  await takeAway(by)
  await platform.kill('mongodb')
  released.resolve()
  await Promise.all(streams)
  await eventually(() => gateway.log().includes('a call is not recorded yet'))
  await platform.start('mongodb')
  await expectMetered(by, 5)
})

test.each(['with their records', 'without their records'])(
  'reservations that a crash of MongoDB took away %s are back before the calls end',
  async (how) => {
    const by = await makeCaller(tenant.id, connector)
    const streams = await begin(by, 3)
    const before = await ledgersOf(by)
    await takeAway(by, how === 'with their records')
    expect((await ledgersOf(by)).map((ledger) => ledger?.tokens)).toEqual([0, 0])
    await platform.restartKilled('mongodb')
    await eventually(async () => {
      const now = await ledgersOf(by)
      return now.every((ledger, at) => ledger?.tokens === before[at]?.tokens)
    })
    expect(await LlmCall.countDocuments({ tenant_id: tenant.id, status: 'open' })).toBe(3)
    released.resolve()
    await Promise.all(streams)
    await expectMetered(by, 3)
  },
)

test('a gateway that is stopped while MongoDB is down leaves its calls to another', async () => {
  const stopped = await startGateway({ KEELSON_OUTBOUND_ALLOWED: `127.0.0.1:${provider.port}` })
  const by = await makeCaller(tenant.id, connector)
  const [stream] = await begin(by, 1, stopped)
  // Waits for the journal, which has the call then, too.
  await LlmCall.updateOne({ tenant_id: tenant.id, status: 'open' }, { $set: { model: 'journaled' } })
  await platform.kill('mongodb')
  released.resolve()
  await stream
  await eventually(() => stopped.log().includes('a call is not recorded yet'))
  await stopped.stop()
  await platform.start('mongodb')
  await LlmCall.updateMany({ tenant_id: tenant.id, status: 'open' }, { $set: { lease_until: new Date() } })
  await settleLostCalls(makePrices(null))
  expect(await by.calls(1)).toMatchObject([{ status: 'lost', counted_by: 'reservation' }])
})

const requests = (seed: number) => provider.asked.filter(({ body }) => body['seed'] === seed).length

describe('the answer to a call of a run is kept once', () => {
  const key = { 'x-keelson-call': 'summarize/-/1' }
  async function ask({ token }: Caller, seed: number): Promise<[string | null, string]> {
    const answer = await fetch(`http://127.0.0.1:${gateway.port}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, ...key },
      body: JSON.stringify({ model: 'held', max_tokens: 100, messages, seed }),
    })
    return [answer.headers.get('x-keelson-answer'), await answer.text()]
  }

  test.each([
    ['although MongoDB was killed meanwhile', 1],
    ['although MongoDB was down when it ended', 2],
  ])('%s', async (_, seed) => {
    const by = await makeCaller(tenant.id, connector, { purpose: { kind: 'run', id: newId() } })
    const first = ask(by, seed)
    await eventually(() => requests(seed) === 1)
    await platform.kill('mongodb')
    if (seed === 2) {
      released.resolve()
      await first
      await eventually(() => gateway.log().includes('an answer is not kept yet'))
    }
    await platform.start('mongodb')
    const second = ask(by, seed)
    released.resolve()
    const [, text] = await first
    expect(await second).toEqual(['kept', text])
    expect(requests(seed)).toBe(1)
    const calls = await by.calls(2)
    expect(calls.map(({ code }) => code)).toEqual([null, 'kept'])
    expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens: whole, open: {} })
  })
})

test('a budget is as full after a crash of MongoDB as before, for the next call too', async () => {
  const by = await makeCaller(tenant.id, connector, { budget: 100 })
  const streams = await begin(by, 1) // its reservation takes all of the budget
  await takeAway(by)
  await platform.restartKilled('mongodb')
  const next = clientOf(by).chat.completions.create({ model: 'next', max_tokens: 100, messages })
  await expect(next).rejects.toMatchObject({ status: 403, code: 'budget_exceeded' })
  expect(provider.askedFor('next')).toEqual([])
  released.resolve()
  await Promise.all(streams)
  const calls = await by.calls(2)
  expect(calls.map(({ status }) => status).toSorted()).toEqual(['refused', 'succeeded'])
  expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens: whole, open: {} })
})
