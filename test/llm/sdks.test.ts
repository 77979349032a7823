import Anthropic from '@anthropic-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import OpenAI from 'openai'
import type { ModelGateway } from '../../gateway/models/server.ts'
import { said, text } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { type Caller, makeCaller, makeConnector, openGateway, providerKey } from '../support/model-gateway.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// The vendors' own SDKs, unchanged, through the gateway.

let tenant: TestTenant
let provider: ModelProvider
let gateway: ModelGateway
let connectors: Record<'openai' | 'anthropic' | 'google', string>

beforeAll(async () => {
  tenant = await makeTenant()
  provider = await startModelProvider()
  gateway = await openGateway([provider.port])
  connectors = {
    openai: await makeConnector(tenant.id, provider.base_url),
    anthropic: await makeConnector(tenant.id, provider.base_url, 'anthropic'),
    google: await makeConnector(tenant.id, provider.base_url.replace('/v1', '/v1beta'), 'google'),
  }
})
afterAll(async () => {
  await gateway.close()
  await provider.close()
})

const url = () => `http://127.0.0.1:${gateway.port}`
const caller = (kind: keyof typeof connectors): Promise<Caller> => makeCaller(tenant.id, connectors[kind])

async function openai(kind: 'openai' | 'google' = 'openai') {
  const by = await caller(kind)
  return { by, client: new OpenAI({ apiKey: by.token, baseURL: `${url()}/v1`, maxRetries: 0 }) }
}
async function anthropic() {
  const by = await caller('anthropic')
  return { by, client: new Anthropic({ apiKey: by.token, baseURL: url(), maxRetries: 0 }) }
}

async function all<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = []
  for await (const item of stream) items.push(item)
  return items
}

const question = [{ role: 'user' as const, content: 'Say three words' }]
const taken = {
  status: 'succeeded',
  http_status: 200,
  counted_by: 'provider',
  input_tokens: said.usage.input,
  output_tokens: said.usage.output,
  cache_read_tokens: said.usage.cached,
  attempts: 1,
}

describe('the SDK of OpenAI', () => {
  test('gets a chat', async () => {
    const { by, client } = await openai()
    const answer = await client.chat.completions.create({ model: 'gpt-4o', messages: question })
    expect(answer.choices[0]?.message.content).toBe(text)
    expect(answer.usage?.prompt_tokens).toBe(said.usage.input)
    const [call] = await by.calls()
    expect(call).toMatchObject({
      ...taken,
      endpoint: 'chat_completions',
      model: 'gpt-4o',
      provider: 'openai',
    })
    expect(call?.cost_nano_usd).toBe(136_250) // 16 at 2.5, 5 cached at 1.25, 9 at 10 dollars a million
  })

  test('streams a chat, and sees no usage that it did not ask for', async () => {
    const { by, client } = await openai()
    const chunks = await all(
      await client.chat.completions.create({ model: 'gpt-4o', messages: question, stream: true }),
    )
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toBe(text)
    expect(chunks.filter(({ usage }) => usage)).toEqual([])
    expect(await by.calls()).toMatchObject([taken])
  })

  test('streams a chat with the usage that it asks for', async () => {
    const { client } = await openai()
    const stream_options = { include_usage: true }
    const chunks = await all(
      await client.chat.completions.create({ model: 'm', messages: question, stream: true, stream_options }),
    )
    expect(chunks.at(-1)?.usage?.completion_tokens).toBe(said.usage.output)
  })

  test('calls a tool in a stream, and answers with its result', async () => {
    const { by, client } = await openai()
    const seen: unknown[] = []
    const runner = client.chat.completions.runTools({
      model: 'm',
      stream: true,
      messages: question,
      tools: [
        {
          type: 'function',
          function: {
            name: said.tool.name,
            description: 'The weather of a city',
            parameters: { type: 'object', properties: { city: { type: 'string' } } },
            parse: JSON.parse,
            function: (input: unknown) => {
              seen.push(input)
              return 'It rains'
            },
          },
        },
      ],
    })
    expect(await runner.finalContent()).toBe(text)
    expect(seen).toEqual([{ city: 'Oslo' }])
    expect(await by.calls(2)).toMatchObject([taken, taken])
  })

  test('gets a response, and streams one', async () => {
    const { by, client } = await openai()
    const answer = await client.responses.create({ model: 'm', input: 'Say three words' })
    expect(answer.output_text).toBe(text)
    const events = await all(
      await client.responses.create({ model: 'm', input: 'Say three words', stream: true }),
    )
    const deltas = events.flatMap((one) => (one.type === 'response.output_text.delta' ? [one.delta] : []))
    expect(deltas.join('')).toBe(text)
    expect(await by.calls(2)).toMatchObject([taken, { ...taken, endpoint: 'responses' }])
  })

  test('gets embeddings and models', async () => {
    const { by, client } = await openai()
    const { data } = await client.embeddings.create({ model: 'm', input: 'a', encoding_format: 'float' })
    expect(data[0]?.embedding).toEqual([0.25, -0.5])
    expect((await client.models.list()).data.map(({ id }) => id)).toEqual(['good'])
    expect(await by.calls(2)).toMatchObject([
      { endpoint: 'embeddings', input_tokens: said.usage.input, output_tokens: 0, counted_by: 'provider' },
      { endpoint: 'models', input_tokens: 0, counted_by: null },
    ])
  })

  test('gets and streams a chat of Google', async () => {
    const { by, client } = await openai('google')
    const chat = { model: 'gemini-2.5-flash', messages: question }
    const answer = await client.chat.completions.create(chat)
    expect(answer.choices[0]?.message.content).toBe(text)
    const chunks = await all(await client.chat.completions.create({ ...chat, stream: true }))
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toBe(text)
    const calls = await by.calls(2)
    expect(calls).toMatchObject([taken, taken])
    expect(calls.map(({ cost_nano_usd }) => cost_nano_usd)).toEqual([expect.any(Number), expect.any(Number)])
    const [first] = provider.askedFor(chat.model)
    expect(first).toMatchObject({
      path: '/v1beta/openai/chat/completions',
      headers: { authorization: `Bearer ${providerKey}` },
    })
    expect(first?.headers['x-goog-api-key']).toBeUndefined()
  })

  test('is refused what is not served in the form that it knows', async () => {
    const { client } = await openai()
    await expect(client.files.list()).rejects.toMatchObject({ status: 404, code: 'not_found' })
  })
})

describe('the SDK of Anthropic', () => {
  const asked = { model: 'm', max_tokens: 100, messages: question }

  test('gets a message', async () => {
    const { by, client } = await anthropic()
    const { content, usage } = await client.messages.create(asked)
    expect(content).toMatchObject([{ type: 'text', text }])
    expect(usage.output_tokens).toBe(said.usage.output)
    expect(await by.calls()).toMatchObject([{ ...taken, endpoint: 'messages', provider: 'anthropic' }])
  })

  test('streams a message', async () => {
    const { by, client } = await anthropic()
    const final = await client.messages.stream(asked).finalMessage()
    expect(final.content).toMatchObject([{ type: 'text', text }])
    expect(await by.calls()).toMatchObject([taken])
  })

  test('calls a tool in a stream, and answers with its result', async () => {
    const { by, client } = await anthropic()
    const tools = [{ name: said.tool.name, input_schema: { type: 'object' as const } }]
    const first = await client.messages.stream({ ...asked, tools }).finalMessage()
    expect(first.stop_reason).toBe('tool_use')
    const [use] = first.content
    expect(use).toMatchObject({ type: 'tool_use', input: { city: 'Oslo' } })
    const result = { type: 'tool_result' as const, tool_use_id: said.tool.id, content: 'It rains' }
    const messages = [
      ...question,
      { role: 'assistant' as const, content: first.content },
      { role: 'user' as const, content: [result] },
    ]
    const second = await client.messages.stream({ ...asked, tools, messages }).finalMessage()
    expect(second.content).toMatchObject([{ type: 'text', text }])
    expect(await by.calls(2)).toMatchObject([taken, taken])
  })

  test('counts tokens and lists models, which take none', async () => {
    const { by, client } = await anthropic()
    const { input_tokens } = await client.messages.countTokens({ model: 'm', messages: question })
    expect(input_tokens).toBe(said.usage.input)
    expect((await client.models.list()).data.map(({ id }) => id)).toEqual(['good'])
    expect((await by.calls(2)).map(({ counted_by }) => counted_by)).toEqual([null, null])
  })
})

describe('a provider', () => {
  test('gets its key and never the caller’s token', async () => {
    const { by, client } = await anthropic()
    await client.messages.create({ model: 'key-of-anthropic', max_tokens: 10, messages: question })
    const second = await openai()
    await second.client.chat.completions.create({ model: 'key-of-openai', messages: question })
    const [toAnthropic] = provider.askedFor('key-of-anthropic')
    const [toOpenai] = provider.askedFor('key-of-openai')
    expect(toAnthropic?.headers).toMatchObject({
      'x-api-key': providerKey,
      'anthropic-version': expect.stringMatching(/^\d{4}-\d\d-\d\d$/), // the SDK's
    })
    expect(toOpenai?.headers.authorization).toBe(`Bearer ${providerKey}`)
    for (const headers of [toAnthropic?.headers, toOpenai?.headers]) {
      const values = JSON.stringify(headers)
      expect([values.includes(by.token), values.includes(second.by.token)]).toEqual([false, false])
    }
  })

  test('gets the caller’s bytes as they are', async () => {
    const { token } = await caller('openai')
    const body = '{ "model":"as-it-is", "seed": 12345678901234567890,\n"messages":[] }'
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', cookie: 'a=b' }
    const answer = await fetch(`${url()}/v1/chat/completions?beta=true`, { method: 'POST', headers, body })
    expect(answer.status).toBe(200)
    expect(answer.headers.get('x-request-id')).toBe('req_1')
    expect(answer.headers.get('set-cookie')).toBeNull()
    expect(provider.askedFor('as-it-is')).toMatchObject([
      { bytes: body, path: '/v1/chat/completions?beta=true' },
    ])
    expect(provider.askedFor('as-it-is')[0]?.headers.cookie).toBeUndefined()
  })
})
