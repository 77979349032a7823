import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { type CallDocument, LlmCall } from '../../models/llm/calls.ts'
import { layout } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// GET /api/v1/llm-usage: the sums of a tenant's calls.

const path = '/api/v1/llm-usage'
const [a, b] = [newId(), newId()]
const day = (ago: number): Date => new Date(Date.now() - ago * 86_400_000)
const dayOf = (ago: number): string => day(ago).toISOString().slice(0, 10)

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
  await insert(tenant.id, { created_at: day(2), input_tokens: 10, output_tokens: 5, cost_nano_usd: 700 })
  await insert(tenant.id, { created_at: day(1), input_tokens: 20, output_tokens: 6, cost_nano_usd: 800 })
  await insert(tenant.id, { created_at: day(1), input_tokens: 30, output_tokens: 7, cost_nano_usd: null })
  await insert(tenant.id, {
    created_at: day(1),
    purpose_id: b,
    purpose_kind: 'run',
    model: 'n',
    input_tokens: 1,
  })
  await insert(tenant.id, {
    created_at: day(1),
    purpose_id: b,
    purpose_kind: 'run',
    status: 'refused',
    model: 'n',
  })
  await insert((await makeTenant()).id, { created_at: day(1), input_tokens: 1_000_000 })
})

async function insert(tenant_id: string, fields: Partial<CallDocument>): Promise<void> {
  await new LlmCall({
    tenant_id,
    purpose_kind: 'session',
    purpose_id: a,
    month: '2026-11',
    connector_id: newId(),
    provider: 'openai',
    endpoint: 'responses',
    model: 'm',
    status: 'succeeded',
    lease_until: new Date(),
    settled: true,
    ...fields,
  }).save()
}

const usage = (query = '') =>
  tenant.owner.get<{ usage: Record<string, unknown>[]; total: number }>(`${path}${query}`)
const sums = async (query: string) =>
  (await usage(`?group_by=model&${query}`)).usage.map((item) => [item['model'], item['input_tokens']])
const none = {
  day: null,
  purpose_kind: null,
  purpose_id: null,
  provider: null,
  model: null,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
}

describe('usage', () => {
  test('is summed up by day, purpose and model, the latest day first', async () => {
    const { usage: items, total } = await usage()
    expect(total).toBe(3)
    expect(items).toHaveLength(3)
    expect(items.map((item) => item['day'])).toEqual([dayOf(1), dayOf(1), dayOf(2)])
    expect(items).toContainEqual({
      ...none,
      day: dayOf(1),
      purpose_kind: 'session',
      purpose_id: a,
      provider: 'openai',
      model: 'm',
      calls: 2,
      refused_calls: 0,
      input_tokens: 50,
      output_tokens: 13,
      cost_nano_usd: 800,
      unpriced_calls: 1,
    })
  })

  test('by day alone has the rest together', async () => {
    const { usage: items } = await usage('?group_by=day')
    expect(items).toMatchObject([
      { ...none, day: dayOf(1), calls: 4, refused_calls: 1, input_tokens: 51, unpriced_calls: 2 },
      { ...none, day: dayOf(2), calls: 1, input_tokens: 10, output_tokens: 5, cost_nano_usd: 700 },
    ])
  })

  test('can be asked for a purpose, a model and a time', async () => {
    expect(await sums(`purpose_kind=run&purpose_id=${b}`)).toEqual([['n', 1]])
    expect(await sums('model=m')).toEqual([['m', 60]])
    expect(await sums(`to=${day(1.5).toISOString()}`)).toEqual([['m', 10]])
  })

  test('comes in pages', async () => {
    const first = await usage('?limit=2')
    const second = await usage('?limit=2&offset=2')
    expect([first.total, first.usage.length, second.usage.length]).toEqual([3, 2, 1])
    expect([...first.usage, ...second.usage]).toEqual((await usage()).usage)
    expect(await usage('?limit=0')).toEqual({ usage: [], total: 3 })
  })

  test.each(['group_by=week', 'group_by=', 'from=yesterday', 'purpose_kind=x', 'colour=red', 'limit=-1'])(
    'refuses ?%s',
    async (query) => {
      expect(await tenant.owner.ask('GET', `${path}?${query}`)).toMatchObject({ status: 400 })
    },
  )

  test('refuses a time that ends before it begins', async () => {
    const query = `from=${day(1).toISOString()}&to=${day(2).toISOString()}`
    expect(await tenant.owner.ask('GET', `${path}?${query}`)).toMatchObject({ status: 400 })
  })

  test('is for viewers, and for nobody without a role', async () => {
    expect((await (await tenant.user('viewer')).ask('GET', path)).status).toBe(200)
    const answer = await (await tenant.user()).ask('GET', path)
    expect(answer).toMatchObject({ status: 403, body: { permission: 'llm_usage:read' } })
  })
})

test('the stack’s own model gateway serves, and refuses whoever has no token', async () => {
  const url = `http://127.0.0.1:${layout.modelsPort}`
  expect((await fetch(`${url}/healthz`)).status).toBe(200)
  const answer = await fetch(`${url}/v1/models`)
  expect([answer.status, await answer.json()]).toEqual([
    401,
    { error: expect.objectContaining({ code: 'unauthenticated' }) },
  ])
})
