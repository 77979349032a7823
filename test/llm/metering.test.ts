import Anthropic from '@anthropic-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import OpenAI from 'openai'
import type { ModelGateway } from '../../gateway/models/server.ts'
import { Connector } from '../../models/connectors/connectors.ts'
import { ledgerOf } from '../../models/llm/ledgers.ts'
import type { Fallback } from '../../models/llm/tokens.ts'
import { eventually } from '../support/eventually.ts'
import { said, text } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider, type Treatment } from '../support/model-provider/server.ts'
import { type Caller, makeCaller, makeConnector, openGateway, providerKey } from '../support/model-gateway.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// What a call takes when something goes wrong: callers that leave, providers that are down, slow, broken or lie.

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
  endless: () => ({ endless: true }),
  silent: () => ({ status: null }),
  stalls: () => ({ waits: { after: 3, for: never } }),
  breaks: () => ({ breaksAfter: 4 }),
  mute: () => ({ figures: 'none' }),
  zero: () => ({ figures: 'zero' }),
  absurd: () => ({ figures: 'absurd' }),
  negative: () => ({ figures: 'negative' }),
  once: (count) => (count === 1 ? { status: 503 } : {}),
  busy: (count) => (count === 1 ? { status: 429, headers: { 'retry-after': '0' } } : {}),
  patience: () => ({ status: 429, headers: { 'retry-after': '60' } }),
  down: () => ({ status: 500 }),
  repeats: () => ({ status: 401, error: JSON.stringify({ error: `wrong key: Bearer ${providerKey}` }) }),
}

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
  gateway = await openGateway([provider.port, 1])
  connector = await makeConnector(tenant.id, provider.base_url)
  ofAnthropic = await makeConnector(tenant.id, provider.base_url, 'anthropic')
})
afterAll(async () => {
  for (const gate of gates.values()) gate.resolve()
  await gateway.close()
  await provider.close()
})

const question = [{ role: 'user' as const, content: 'hello' }]
const most = { max_tokens: 50, messages: question }
const urlOf = ({ port }: ModelGateway) => `http://127.0.0.1:${port}`
const openai = (by: Caller, at = gateway) =>
  new OpenAI({ apiKey: by.token, baseURL: `${urlOf(at)}/v1`, maxRetries: 0 })
const caller = (id = connector, fallbacks: Fallback[] = []) => makeCaller(tenant.id, id, { fallbacks })
const stream = (by: Caller, model: string, at = gateway) =>
  openai(by, at).chat.completions.create({ model, ...most, stream: true })
const ask = (by: Caller, model: string, at = gateway) =>
  openai(by, at).chat.completions.create({ model, ...most })
/** The one call, and that the ledger has the same. */
async function metered(by: Caller) {
  const [call] = await by.calls()
  const ledger = await ledgerOf(tenant.id, by.purpose)
  expect(ledger).toMatchObject({ tokens: (call?.input_tokens ?? 0) + (call?.output_tokens ?? 0), open: {} })
  return call
}
const truth = { counted_by: 'provider', input_tokens: said.usage.input, output_tokens: said.usage.output }

describe('a caller who hangs up', () => {
  test('has taken what the provider says at the end, which is read for that', async () => {
    const by = await caller()
    const chunks = await stream(by, 'held-1')
    for await (const _ of chunks) break
    expect(provider.wasLeft('held-1')).toBe(false)
    gateOf('held-1').resolve()
    expect(await metered(by)).toMatchObject(truth)
  })

  test('of a message, too', async () => {
    const by = await caller(ofAnthropic)
    const client = new Anthropic({ apiKey: by.token, baseURL: urlOf(gateway), maxRetries: 0 })
    const events = await client.messages.create({ model: 'held-2', ...most, stream: true })
    for await (const _ of events) break
    gateOf('held-2').resolve()
    expect(await metered(by)).toMatchObject(truth)
  })

  test('of a stream without end pays for an estimate, and the provider is left', async () => {
    const by = await caller()
    for await (const chunk of await stream(by, 'endless-1')) if (chunk.choices[0]?.delta.content) break
    const call = await metered(by)
    expect(call).toMatchObject({ status: 'interrupted', counted_by: 'estimate' })
    expect(call?.input_tokens).toBeGreaterThan(0)
    expect(call?.output_tokens).toBeGreaterThan(1_000)
    await eventually(() => provider.wasLeft('endless-1'))
  })

  test('before an answer has begun, pays for it all the same', async () => {
    const by = await caller()
    const stop = new AbortController()
    const answer = openai(by).chat.completions.create({ model: 'held-3', ...most }, { signal: stop.signal })
    await eventually(() => provider.askedFor('held-3').length > 0)
    stop.abort()
    await expect(answer).rejects.toThrow()
    gateOf('held-3').resolve()
    // Whether it was interrupted depends on which of the two the gateway notices first.
    expect(await metered(by)).toMatchObject(truth)
  })
})

describe('a provider that', () => {
  test.each(['zero-1', 'zero-2'])('says that a call took nothing is believed (%s)', async (model) => {
    const by = await caller()
    if (model === 'zero-1') await ask(by, model)
    else for await (const _ of await stream(by, model));
    expect(await metered(by)).toMatchObject({ counted_by: 'provider', input_tokens: 0, output_tokens: 0 })
  })

  test.each(['absurd', 'negative'])('says %s figures is charged for what was reserved', async (figures) => {
    for (const [id, kind] of [
      [connector, 'chat'],
      [connector, 'stream'],
      [ofAnthropic, 'message'],
    ] as const) {
      const by = await caller(id)
      const model = `${figures}-${kind}`
      if (kind === 'chat') await ask(by, model)
      else if (kind === 'stream') for await (const _ of await stream(by, model));
      else
        await new Anthropic({ apiKey: by.token, baseURL: urlOf(gateway) }).messages.create({ model, ...most })
      const call = await metered(by)
      expect(call).toMatchObject({ status: 'succeeded', counted_by: 'reservation', output_tokens: 50 })
      expect(call?.input_tokens).toBe(call?.estimated_input_tokens)
    }
  })

  test('says nothing of its usage is charged for an estimate', async () => {
    const by = await caller()
    for await (const _ of await stream(by, 'mute-1'));
    const call = await metered(by)
    expect(call).toMatchObject({ status: 'succeeded', counted_by: 'estimate' })
    expect(call?.input_tokens).toBe(call?.estimated_input_tokens)
    expect(call?.output_tokens).toBeGreaterThanOrEqual(Math.ceil(text.length / 3))
  })

  test('breaks off is seen to have broken off, and is charged for what came', async () => {
    const by = await caller()
    const chunks = await stream(by, 'breaks-1')
    const read = async () => {
      for await (const _ of chunks);
    }
    await expect(read()).rejects.toThrow()
    const call = await metered(by)
    expect(call).toMatchObject({ status: 'failed', code: 'provider_broke_off', counted_by: 'estimate' })
  })

  test('is silent is given up, and not asked again', async () => {
    const hasty = await openGateway([provider.port], { KEELSON_MODELS_QUIET_SEC: 1 })
    try {
      const by = await caller()
      await expect(stream(by, 'silent-1', hasty)).rejects.toMatchObject({
        status: 504,
        code: 'provider_timeout',
      })
      const call = await metered(by)
      expect(call).toMatchObject({ attempts: 1, counted_by: 'estimate', output_tokens: 0, status: 'failed' })
      expect(provider.askedFor('silent-1')).toHaveLength(1)
    } finally {
      await hasty.close()
    }
  })

  test('stalls in a stream is given up, and the stream does not look whole', async () => {
    const hasty = await openGateway([provider.port], { KEELSON_MODELS_QUIET_SEC: 1 })
    try {
      const by = await caller()
      const chunks = await stream(by, 'stalls-1', hasty)
      const read = async () => {
        for await (const _ of chunks);
      }
      await expect(read()).rejects.toThrow()
      expect(await metered(by)).toMatchObject({ status: 'failed', counted_by: 'estimate' })
    } finally {
      await hasty.close()
    }
  })

  test('takes longer than a call may take is given up', async () => {
    const hasty = await openGateway([provider.port], { KEELSON_MODELS_CALL_SEC: 1 })
    try {
      const by = await caller()
      await expect(ask(by, 'silent-2', hasty)).rejects.toMatchObject({ status: 504 })
      await metered(by)
    } finally {
      await hasty.close()
    }
  })

  test.each(['once-1', 'busy-1'])('fails at first is asked again (%s)', async (model) => {
    const by = await caller()
    expect((await ask(by, model)).choices[0]?.message.content).toBe(text)
    expect(await metered(by)).toMatchObject({ attempts: 2, status: 'succeeded', ...truth })
  })

  test('stays down is passed on as it says, and takes nothing', async () => {
    const by = await caller()
    await expect(ask(by, 'down-1')).rejects.toMatchObject({ status: 500, type: 'provider_says_no' })
    const call = await metered(by)
    expect(call).toMatchObject({ attempts: 2, status: 'failed', code: 'provider_error', input_tokens: 0 })
  })

  test('asks for patience gets it: the caller decides', async () => {
    const by = await caller()
    const answer = ask(by, 'patience-1')
    await expect(answer).rejects.toMatchObject({ status: 429 })
    expect(await metered(by)).toMatchObject({ attempts: 1 })
  })

  test('does not listen is told so', async () => {
    const by = await caller(await makeConnector(tenant.id, 'http://127.0.0.1:1/v1'))
    await expect(ask(by, 'm')).rejects.toMatchObject({ status: 502, code: 'provider_unavailable' })
    expect(await metered(by)).toMatchObject({ attempts: 2, status: 'failed', counted_by: null })
  })

  test('is at a private address is never asked', async () => {
    const by = await caller(await makeConnector(tenant.id, 'http://169.254.169.254/v1'))
    await expect(ask(by, 'm')).rejects.toMatchObject({ status: 403, code: 'address_not_allowed' })
    await metered(by)
  })

  test('repeats its key does not show it to the caller', async () => {
    const by = await caller()
    const headers = { authorization: `Bearer ${by.token}`, 'content-type': 'application/json' }
    const body = JSON.stringify({ model: 'repeats-1', ...most })
    const answer = await fetch(`${urlOf(gateway)}/v1/chat/completions`, { method: 'POST', headers, body })
    expect([answer.status, await answer.json()]).toEqual([401, { error: 'wrong key: Bearer [secret]' }])
  })
})

describe('a fallback', () => {
  test('answers with its own model when the first connector does not', async () => {
    const second = await makeConnector(tenant.id, provider.base_url)
    const by = await caller(connector, [{ connector_id: second, model: 'other-1' }])
    expect((await ask(by, 'down-2')).model).toBe('other-1')
    const call = await metered(by)
    expect(call).toMatchObject({ connector_id: second, model: 'other-1', attempts: 3, ...truth })
  })

  test('is passed over if it is gone or speaks another API', async () => {
    const gone = await makeConnector(tenant.id, provider.base_url)
    const third = await makeConnector(tenant.id, provider.base_url)
    const fallbacks = [gone, ofAnthropic, third].map((connector_id) => ({ connector_id, model: 'other-2' }))
    const by = await caller(await makeConnector(tenant.id, 'http://127.0.0.1:1/v1'), fallbacks)
    await Connector.deleteOne({ _id: gone, tenant_id: tenant.id })
    expect((await ask(by, 'm')).model).toBe('other-2')
    expect(await metered(by)).toMatchObject({ connector_id: third, status: 'succeeded' })
  })

  test('is not asked once a stream has begun', async () => {
    const by = await caller(connector, [{ connector_id: connector, model: 'other-3' }])
    const chunks = await stream(by, 'breaks-2')
    const read = async () => {
      for await (const _ of chunks);
    }
    await expect(read()).rejects.toThrow()
    await metered(by)
    expect(provider.askedFor('other-3')).toEqual([])
  })
})

test('a connector has a bounded number of calls at once, and the next one is asked to wait', async () => {
  const narrow = await openGateway([provider.port], { KEELSON_MODELS_PER_CONNECTOR: 2 })
  const own = await makeConnector(tenant.id, provider.base_url)
  const by = await caller(own)
  try {
    const two = await Promise.all([stream(by, 'stalls-2', narrow), stream(by, 'stalls-2', narrow)])
    const third = ask(by, 'm', narrow)
    await expect(third).rejects.toMatchObject({ status: 429, code: 'too_many_calls' })
    expect((await ask(await caller(), 'm', narrow)).choices).toHaveLength(1)
    for (const one of two) one.controller.abort()
  } finally {
    await narrow.close()
  }
  const calls = await by.calls(2)
  expect(calls.map(({ status }) => status)).toEqual(['interrupted', 'interrupted'])
  expect((await ledgerOf(tenant.id, by.purpose))?.open).toEqual({})
})

test('a body that is too large is refused before it is read', async () => {
  const by = await caller()
  const messages = [{ role: 'user' as const, content: 'x'.repeat(2 * 1024 ** 2) }]
  const answer = openai(by).chat.completions.create({ model: 'large', messages })
  await expect(answer).rejects.toMatchObject({ status: 413 })
  expect(provider.askedFor('large')).toEqual([])
})
