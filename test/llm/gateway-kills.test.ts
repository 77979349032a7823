import { afterAll, beforeAll, expect, test } from '@jest/globals'
import OpenAI from 'openai'
import type { ModelGateway } from '../../gateway/models/server.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { ledgerOf, monthLedgerOf, monthOf } from '../../models/llm/ledgers.ts'
import { settleLostCalls } from '../../models/llm/lost-calls.ts'
import { makePrices } from '../../models/llm/prices.ts'
import { said } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import {
  makeCaller,
  makeConnector,
  openGateway,
  providerKey,
  startGateway,
} from '../support/model-gateway.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// kill -9 of a model gateway: no call is lost, and none is counted twice.

const never = new Promise<never>(() => {})
const prompt = 'a question that nobody else asks'
let tenant: TestTenant
let provider: ModelProvider
let connector: string

beforeAll(async () => {
  tenant = await makeTenant()
  provider = await startModelProvider((model) =>
    model === 'held' ? { waits: { after: 3, for: never } } : {},
  )
  connector = await makeConnector(tenant.id, provider.base_url)
})
afterAll(() => provider.close())

const allowed = () => ({ KEELSON_OUTBOUND_ALLOWED: `127.0.0.1:${provider.port}` })
const clientAt = ({ port }: Pick<ModelGateway, 'port'>, token: string) =>
  new OpenAI({ apiKey: token, baseURL: `http://127.0.0.1:${port}/v1`, maxRetries: 0 })
const body = (model: string) => ({
  model,
  max_tokens: 70,
  messages: [{ role: 'user' as const, content: prompt }],
})
const month = () => monthLedgerOf(tenant.id, monthOf(new Date()))

test('a gateway that is killed in the middle of streams leaves calls that another settles once, as reserved', async () => {
  const killed = await startGateway(allowed())
  const by = await makeCaller(tenant.id, connector)
  const client = clientAt(killed, by.token)
  await client.chat.completions.create(body('whole'))
  await by.calls(1)
  const streams = await Promise.all(
    [1, 2, 3].map(() => client.chat.completions.create({ ...body('held'), stream: true })),
  )
  await killed.kill()
  for (const stream of streams)
    await expect(
      (async () => {
        for await (const _ of stream);
      })(),
    ).rejects.toThrow()

  const open = await LlmCall.find({ tenant_id: tenant.id, status: 'open' }).lean()
  expect(open).toHaveLength(3)
  const reserved = open.reduce((sum, { reserved_tokens }) => sum + reserved_tokens, 0)
  const whole = said.usage.input + said.usage.output
  const purpose = () => ledgerOf(tenant.id, by.purpose)
  // Until then, and afterwards, the budget has them.
  expect((await purpose())?.tokens).toBe(whole + reserved)

  // Nothing is settled while its gateway may still live.
  await settleLostCalls(makePrices(null))
  expect(await LlmCall.countDocuments({ tenant_id: tenant.id, status: 'open' })).toBe(3)
  await LlmCall.updateMany({ tenant_id: tenant.id, status: 'open' }, { $set: { lease_until: new Date() } })
  const others = await Promise.all([openGateway([]), openGateway([])])
  try {
    // Gateways look every few seconds, all at once.
    await Promise.all([1, 2, 3].map(() => settleLostCalls(makePrices(null))))
    const lost = (await by.calls(4)).filter(({ status }) => status === 'lost')
    expect(lost).toHaveLength(3)
    for (const call of lost) {
      expect(call).toMatchObject({ counted_by: 'reservation', output_tokens: 70 })
      expect(call.input_tokens + call.output_tokens).toBe(call.reserved_tokens)
    }
    expect(await purpose()).toMatchObject({ tokens: whole + reserved, open: {} })
    expect(await month()).toMatchObject({ tokens: whole + reserved, open: {} })
  } finally {
    await Promise.all(others.map((one) => one.close()))
  }
})

// `held` is used after the gateway's end, since fetch cuts the stream of a body that nobody refers to any more.

test('a gateway settles lost calls by itself', async () => {
  const killed = await startGateway(allowed())
  const by = await makeCaller(tenant.id, connector)
  const held = await clientAt(killed, by.token).chat.completions.create({ ...body('held'), stream: true })
  await killed.kill()
  held.controller.abort()
  await LlmCall.updateMany({ tenant_id: tenant.id, status: 'open' }, { $set: { lease_until: new Date() } })
  const other = await startGateway(allowed())
  try {
    // This one, or the stack's own.
    expect(await by.calls()).toMatchObject([{ status: 'lost' }])
  } finally {
    await other.stop()
  }
})

test('a call that was recorded, but not settled, is settled by its record', async () => {
  const gateway = await openGateway([provider.port])
  const by = await makeCaller(tenant.id, connector)
  await clientAt(gateway, by.token).chat.completions.create(body('whole'))
  const [call] = await by.calls()
  await gateway.close()
  // As if it had been killed between the two: the ledgers are settled already, or one of them is.
  const filter = { tenant_id: tenant.id, _id: call?._id ?? '' }
  await LlmCall.updateOne(filter, { $set: { settled: false, lease_until: new Date() } })
  await settleLostCalls(makePrices(null))
  const [settled] = await by.calls() // by this process, or by the stack's own gateway
  expect(settled).toEqual({ ...call, lease_until: expect.any(Date) })
  const tokens = said.usage.input + said.usage.output
  expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens, open: {} })
})

test('a gateway that is stopped cuts its streams and settles them first, and its log has no key and no prompt', async () => {
  const stopped = await startGateway(allowed())
  const by = await makeCaller(tenant.id, connector)
  const client = clientAt(stopped, by.token)
  await client.chat.completions.create(body('whole'))
  const held = await client.chat.completions.create({ ...body('held'), stream: true })
  await stopped.stop()
  held.controller.abort()
  const calls = await by.calls(2)
  expect(calls.map(({ status }) => status)).toEqual(['succeeded', 'failed'])
  expect((await ledgerOf(tenant.id, by.purpose))?.open).toEqual({})
  for (const secret of [providerKey, by.token, prompt]) expect(stopped.log()).not.toContain(secret)
  expect(stopped.log()).toContain('ready')
})
