import Anthropic from '@anthropic-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import OpenAI from 'openai'
import { v7 } from 'uuid'
import type { ModelGateway } from '../../gateway/models/server.ts'
import { newId } from '../../lib/ids.ts'
import { Connector } from '../../models/connectors/connectors.ts'
import { setLimits, Tenant } from '../../models/identity/tenants.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { closeLedger, Ledger, ledgerOf, monthLedgerOf, monthOf } from '../../models/llm/ledgers.ts'
import { issueToken } from '../../models/llm/tokens.ts'
import { ask as askApi } from '../support/client.ts'
import { said } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { type Caller, makeCaller, makeConnector, openGateway } from '../support/model-gateway.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Budgets of purposes and the tenant's limit of a month: refused before anything is sent, and never overspent by more than
// one call may take.

const whole = said.usage.input + said.usage.output
let tenant: TestTenant
let provider: ModelProvider
let gateway: ModelGateway
let connector: string
let release: () => void

beforeAll(async () => {
  tenant = await makeTenant()
  const released = Promise.withResolvers<void>()
  release = released.resolve
  provider = await startModelProvider((model) =>
    model.startsWith('held') ? { waits: { after: 1, for: released.promise } } : {},
  )
  gateway = await openGateway([provider.port])
  connector = await makeConnector(tenant.id, provider.base_url)
})
afterAll(async () => {
  release()
  await gateway.close()
  await provider.close()
})

const clientOf = (by: Caller, maxRetries = 0) =>
  new OpenAI({ apiKey: by.token, baseURL: `http://127.0.0.1:${gateway.port}/v1`, maxRetries })
const ask = (by: Caller, model: string, max_tokens = 100) =>
  clientOf(by).chat.completions.create({ model, max_tokens, messages: [{ role: 'user', content: 'hello' }] })
const tokens = async (by: Caller): Promise<number> => (await ledgerOf(tenant.id, by.purpose))?.tokens ?? -1

test('calls are added up in the ledgers of their purpose and of the month', async () => {
  const [a, b] = [await makeCaller(tenant.id, connector), await makeCaller(tenant.id, connector)]
  await ask(a, 'm')
  await ask(a, 'm')
  await ask(b, 'm')
  await Promise.all([a.calls(2), b.calls(1)])
  expect([await tokens(a), await tokens(b)]).toEqual([2 * whole, whole])
  const month = await monthLedgerOf(tenant.id, monthOf(new Date()))
  expect(month?.tokens).toBeGreaterThanOrEqual(3 * whole)
})

describe('a spent budget', () => {
  test('is refused in the form of OpenAI, before anything is sent, and is not tried again', async () => {
    const by = await makeCaller(tenant.id, connector, { budget: whole })
    await ask(by, 'before')
    const client = clientOf(by, 2)
    const answer = client.chat.completions.create({ model: 'after', messages: [] })
    await expect(answer).rejects.toMatchObject({
      status: 403,
      code: 'budget_exceeded',
      message: expect.stringContaining('32768 of them because it does not bound its answer'),
    })
    expect(provider.askedFor('after')).toEqual([])
    const calls = await by.calls(2)
    expect(calls.map(({ status }) => status)).toEqual(['succeeded', 'refused'])
    expect(calls[1]).toMatchObject({
      http_status: 403,
      code: 'budget_exceeded',
      attempts: 0,
      input_tokens: 0,
    })
    expect(await tokens(by)).toBe(whole)
  })

  test('is refused in the form of Anthropic', async () => {
    const anthropic = await makeConnector(tenant.id, provider.base_url, 'anthropic')
    const by = await makeCaller(tenant.id, anthropic, { budget: 0 })
    const client = new Anthropic({ apiKey: by.token, baseURL: `http://127.0.0.1:${gateway.port}` })
    const answer = client.messages.create({ model: 'after', max_tokens: 10, messages: [] })
    await expect(answer).rejects.toMatchObject({
      status: 403,
      error: { type: 'error', error: { type: 'budget_exceeded' } },
    })
    expect(await by.calls(1)).toHaveLength(1)
  })

  test('is raised by the next token', async () => {
    const by = await makeCaller(tenant.id, connector, { budget: 0 })
    await expect(ask(by, 'm')).rejects.toMatchObject({ status: 403 })
    const grant = { tenant_id: tenant.id, purpose: by.purpose, connector_id: connector, fallbacks: [] }
    await issueToken(grant, 1_000)
    await ask(by, 'm')
  })
})

test('of 50 calls at once at the edge of a budget, one may go beyond it', async () => {
  // Each reserves some hundred tokens: a few have room, and one more is begun with the last.
  const budget = 500
  const by = await makeCaller(tenant.id, connector, { budget })
  const streams = Array.from({ length: 50 }, () =>
    clientOf(by).chat.completions.create({
      model: 'held-edge',
      max_tokens: 100,
      stream: true,
      messages: [{ role: 'user', content: 'hello' }],
    }),
  )
  const begun = await Promise.allSettled(streams)
  const refused = begun.filter((one) => one.status === 'rejected')
  const running = begun.length - refused.length
  for (const { reason } of refused) expect(reason).toMatchObject({ status: 403, code: 'budget_exceeded' })
  expect(provider.askedFor('held-edge')).toHaveLength(running)
  const ledger = await ledgerOf(tenant.id, by.purpose)
  const each = Object.values(ledger?.open ?? {})
  expect(each).toHaveLength(running)
  const most = Math.max(...each)
  expect(ledger?.tokens).toBe(each.reduce((sum, one) => sum + one, 0))
  expect(ledger?.tokens).toBeGreaterThanOrEqual(budget)
  expect(ledger?.tokens).toBeLessThan(budget + most)

  release()
  for (const one of begun) if (one.status === 'fulfilled') for await (const _ of one.value);
  await by.calls(50)
  expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens: running * whole, open: {} })
})

test('calls one after another have all of a budget', async () => {
  const by = await makeCaller(tenant.id, connector, { budget: 10 * whole })
  // The reservation of each is beyond what is left; it is settled before its answer ends.
  for (let i = 0; i < 10; i++) await ask(by, 'm', 5_000)
  await expect(ask(by, 'm')).rejects.toMatchObject({ status: 403 })
  expect(await tokens(by)).toBe(10 * whole)
})

test('a reservation without a record is taken back when the purpose gets its next token', async () => {
  const by = await makeCaller(tenant.id, connector, { budget: 1_000 })
  await ask(by, 'm')
  await by.calls(1)
  const [old, recent] = [v7({ msecs: Date.now() - 3 * 3_600_000 }), newId()]
  await Ledger.updateOne(
    { _id: `${tenant.id}:session:${by.purpose.id}`, tenant_id: tenant.id },
    { $inc: { tokens: 700 }, $set: { open: { [old]: 400, [recent]: 300 } } },
  )
  const grant = { tenant_id: tenant.id, purpose: by.purpose, connector_id: connector, fallbacks: [] }
  await issueToken(grant, 1_000)
  // The call of the recent one may be under way.
  const ledger = await ledgerOf(tenant.id, by.purpose)
  expect(ledger).toMatchObject({ tokens: whole + 300, open: { [recent]: 300 } })
})

const callerWith = (nano_usd: number, most: number | null = null) =>
  makeCaller(tenant.id, connector, { budget: { tokens: most, nano_usd } })
const ledger = (by: Caller) => ledgerOf(tenant.id, by.purpose)

describe('a budget of costs', () => {
  test('is refused before the call when what was spent reaches it, and not before', async () => {
    const first = await callerWith(1)
    await ask(first, 'gpt-4o')
    const one = (await ledger(first))?.cost_nano_usd ?? 0
    expect(one).toBeGreaterThan(1)
    await expect(ask(first, 'gpt-4o')).rejects.toMatchObject({ status: 403, code: 'budget_exceeded' })

    // One call after another: each is settled before its answer ends.
    const by = await callerWith(3 * one)
    for (let i = 0; i < 3; i++) await ask(by, 'gpt-4o')
    await expect(ask(by, 'gpt-4o')).rejects.toMatchObject({ status: 403, code: 'budget_exceeded' })
    await by.calls(4)
    expect(await ledger(by)).toMatchObject({ cost_nano_usd: 3 * one, tokens: 3 * whole, open: {} })
  })

  test('is refused before the first call if it is nothing', async () => {
    const by = await callerWith(0)
    await expect(ask(by, 'gpt-4o-none')).rejects.toMatchObject({ status: 403, code: 'budget_exceeded' })
    expect(provider.askedFor('gpt-4o-none')).toEqual([])
  })

  test('leaves calls at an unknown price to the budget of tokens', async () => {
    const by = await callerWith(1, 2 * whole)
    await ask(by, 'unknown')
    await ask(by, 'unknown')
    await expect(ask(by, 'unknown')).rejects.toMatchObject({ status: 403, code: 'budget_exceeded' })
    await by.calls(3)
    expect(await ledger(by)).toMatchObject({ cost_nano_usd: 0, tokens: 2 * whole, open: {} })
  })

  test('is raised by the next token', async () => {
    const by = await callerWith(0)
    await expect(ask(by, 'gpt-4o')).rejects.toMatchObject({ status: 403 })
    const grant = { tenant_id: tenant.id, purpose: by.purpose, connector_id: connector, fallbacks: [] }
    await issueToken(grant, { tokens: null, nano_usd: 1_000 })
    await ask(by, 'gpt-4o')
  })
})

describe('the limit of a tenant’s month', () => {
  test('is refused like a budget, for every purpose', async () => {
    const poor = await makeTenant({ max_llm_tokens_month: whole })
    const own = await makeConnector(poor.id, provider.base_url)
    await ask(await makeCaller(poor.id, own), 'm')
    for (let i = 0; i < 2; i++) {
      const by = await makeCaller(poor.id, own)
      await expect(ask(by, 'beyond-month')).rejects.toMatchObject({ status: 403, code: 'budget_exceeded' })
      expect((await ledgerOf(poor.id, by.purpose))?.tokens).toBe(0)
    }
    expect(provider.askedFor('beyond-month')).toEqual([])
    expect(await monthLedgerOf(poor.id, monthOf(new Date()))).toMatchObject({ tokens: whole, open: {} })
  })

  test('counts for the next call when it is changed', async () => {
    const other = await makeTenant({ max_llm_tokens_month: 1_000_000 })
    const by = await makeCaller(other.id, await makeConnector(other.id, provider.base_url))
    await ask(by, 'm')
    await setLimits(other.id, { max_llm_tokens_month: whole })
    await expect(ask(by, 'm')).rejects.toMatchObject({ status: 403, code: 'budget_exceeded' })
    expect(await monthLedgerOf(other.id, monthOf(new Date()))).toMatchObject({ tokens: whole, open: {} })
    await setLimits(other.id, { max_llm_tokens_month: 1_000_000 })
    await ask(by, 'm')
  })

  test('of nothing allows nothing', async () => {
    const none = await makeTenant({ max_llm_tokens_month: 0 })
    const by = await makeCaller(none.id, await makeConnector(none.id, provider.base_url))
    await expect(ask(by, 'm')).rejects.toMatchObject({ status: 403, code: 'budget_exceeded' })
  })
})

describe('a token', () => {
  const refused = { status: 401, code: 'unauthenticated' }

  test('ends with its purpose, also for what takes no tokens', async () => {
    const by = await makeCaller(tenant.id, connector)
    await ask(by, 'm')
    await closeLedger(tenant.id, by.purpose)
    await expect(ask(by, 'm')).rejects.toMatchObject(refused)
    await expect(clientOf(by).models.list()).rejects.toMatchObject(refused)
    const grant = { tenant_id: tenant.id, purpose: by.purpose, connector_id: connector, fallbacks: [] }
    await expect(issueToken(grant, null)).rejects.toMatchObject({ code: 'state_conflict' })
  })

  test('that has expired is refused', async () => {
    const by = await makeCaller(tenant.id, connector)
    const grant = { tenant_id: tenant.id, purpose: by.purpose, connector_id: connector, fallbacks: [] }
    const { token } = await issueToken(grant, null, 0)
    await expect(ask({ ...by, token }, 'm')).rejects.toMatchObject(refused)
  })

  test.each(['', 'sk-something', 'a.b.c'])('like “%s” is refused', async (token) => {
    const by = await makeCaller(tenant.id, connector)
    await expect(ask({ ...by, token: token || ' ' }, 'm')).rejects.toMatchObject({ status: 401 })
  })

  test('of a person’s session is refused, and opens nothing of the API', async () => {
    const by = await makeCaller(tenant.id, connector)
    await expect(ask({ ...by, token: tenant.owner.token }, 'm')).rejects.toMatchObject(refused)
    expect((await askApi('GET', '/api/v1/limits', { token: by.token })).status).toBe(401)
  })

  test('is for the tenant’s own connectors with models alone', async () => {
    const other = await makeTenant()
    await expect(makeCaller(other.id, connector)).rejects.toMatchObject({ status: 404 })
    const git = await makeConnector(tenant.id, provider.base_url, 'github')
    await expect(makeCaller(tenant.id, git)).rejects.toMatchObject({ code: 'connector_required' })
  })

  test('ends with its connector', async () => {
    const own = await makeConnector(tenant.id, provider.base_url)
    const by = await makeCaller(tenant.id, own)
    await Connector.deleteOne({ _id: own, tenant_id: tenant.id })
    await expect(ask(by, 'm')).rejects.toMatchObject(refused)
    expect(await by.calls()).toMatchObject([{ status: 'refused', input_tokens: 0 }])
    expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens: 0, open: {} })
  })

  test('ends with its tenant, whose call leaves no record', async () => {
    const going = await makeTenant()
    const by = await makeCaller(going.id, await makeConnector(going.id, provider.base_url))
    await ask(by, 'm')
    await by.calls(1)
    await Tenant.updateOne({ _id: going.id }, { $set: { status: 'deleting' } })
    await expect(ask(by, 'm')).rejects.toMatchObject(refused)
    expect(await LlmCall.countDocuments({ tenant_id: going.id })).toBe(1)
    expect(await ledgerOf(going.id, by.purpose)).toMatchObject({ tokens: whole, open: {} })
  })

  test('for a connector of another API is told so', async () => {
    const anthropic = await makeConnector(tenant.id, provider.base_url, 'anthropic')
    await expect(ask(await makeCaller(tenant.id, anthropic), 'm')).rejects.toMatchObject({ status: 404 })
  })
})
