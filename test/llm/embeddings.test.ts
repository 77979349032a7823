import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import OpenAI from 'openai'
import type { ModelGateway } from '../../gateway/models/server.ts'
import { newId } from '../../lib/ids.ts'
import { closeLedger, ledgerOf } from '../../models/llm/ledgers.ts'
import { openEmbeddings } from '../../models/retrieval/embeddings.ts'
import { ownEmbedder } from '../support/embedder.ts'
import { eventually } from '../support/eventually.ts'
import { startModelProvider, type ModelProvider } from '../support/model-provider/server.ts'
import { type Caller, makeCaller, makeConnector, openGateway } from '../support/model-gateway.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Embeddings by the platform's own model, metered as calls of providers are. What the model itself answers:
// own-models.unit.test.ts.

let tenant: TestTenant
let provider: ModelProvider
let gateway: ModelGateway

beforeAll(async () => {
  tenant = await makeTenant()
  provider = await startModelProvider()
  gateway = await openGateway([provider.port])
})
afterAll(async () => {
  await gateway.close()
  await provider.close()
})

const clientOf = (by: Caller) =>
  new OpenAI({ apiKey: by.token, baseURL: `http://127.0.0.1:${gateway.port}/v1`, maxRetries: 0 })
const model = 'all-MiniLM-L6-v2-int8'
const embed = (by: Caller, input: string | string[]) => clientOf(by).embeddings.create({ model, input })
// With the tokens around it.
const text = 'hello world'
const tokensOfText = 4

test('a call of the platform’s own model is recorded and added up, at no cost', async () => {
  const by = await makeCaller(tenant.id, null)
  const { usage } = await embed(by, [text, text])
  expect(usage.prompt_tokens).toBe(2 * tokensOfText)
  expect(await by.calls()).toMatchObject([
    {
      connector_id: null,
      provider: 'keelson',
      endpoint: 'embeddings',
      model,
      status: 'succeeded',
      counted_by: 'provider',
      input_tokens: 2 * tokensOfText,
      output_tokens: 0,
      cost_nano_usd: 0,
    },
  ])
  expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens: 2 * tokensOfText, open: {} })
})

test('a spent budget ends calls of the platform’s own model, too', async () => {
  const by = await makeCaller(tenant.id, null, { budget: 2 * tokensOfText })
  await embed(by, text)
  await embed(by, text)
  await expect(embed(by, text)).rejects.toMatchObject({ status: 403, code: 'budget_exceeded' })
  await by.calls(3)
  expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens: 2 * tokensOfText, open: {} })
})

test('a refused text takes nothing', async () => {
  const by = await makeCaller(tenant.id, null)
  const refused = embed(by, 'word '.repeat(300))
  await expect(refused).rejects.toMatchObject({ status: 400, code: 'text_too_long' })
  expect(await by.calls()).toMatchObject([{ status: 'refused', code: 'text_too_long', input_tokens: 0 }])
  expect(await ledgerOf(tenant.id, by.purpose)).toMatchObject({ tokens: 0, open: {} })
})

test('the token says whose models are called: those of a connector are not the platform’s', async () => {
  const connector = await makeConnector(tenant.id, provider.base_url)
  const [own, remote] = [await makeCaller(tenant.id, null), await makeCaller(tenant.id, connector)]
  const [mine, its] = await Promise.all([clientOf(own).models.list(), clientOf(remote).models.list()])
  expect(mine.data.map(({ id }) => id)).toEqual([expect.stringContaining(model)])
  expect(its.data.map(({ id }) => id)).not.toContain(mine.data[0]?.id)
  await clientOf(remote).embeddings.create({ model, input: text, encoding_format: 'float' })
  expect(provider.askedFor(model)).toHaveLength(1)
  expect(await remote.calls(2)).toMatchObject([{ connector_id: connector }, { endpoint: 'embeddings' }])
})

const asked = (kind: 'document' | 'collection') => ({
  tenant_id: tenant.id,
  purpose: { kind, id: newId() },
  connector_id: null,
  model,
})
/** The ledger, once no call is under way. */
const settled = ({ purpose }: ReturnType<typeof asked>) =>
  eventually(async () => {
    const ledger = await ledgerOf(tenant.id, purpose)
    return Object.keys(ledger?.open ?? {}).length === 0 && ledger
  })
const embeddings = () => openEmbeddings(`http://127.0.0.1:${gateway.port}`)

describe('the platform itself', () => {
  test('embeds a document and a question to its collection, each metered for itself', async () => {
    const own = embeddings()
    const { id } = await ownEmbedder()
    const [document, question] = [{ ...asked('document'), model: id }, asked('collection')]
    const embedded = await own.embed(
      Array.from({ length: 40 }, () => text),
      document,
    )
    expect(embedded.vectors.map(({ length }) => length)).toEqual(Array.from({ length: 40 }, () => 384))
    expect(embedded.tokens).toBe(40 * tokensOfText)
    await own.embed([text], question)
    expect(await settled(document)).toMatchObject({ tokens: 40 * tokensOfText })
    expect(await settled(question)).toMatchObject({ tokens: tokensOfText })
    await own.close()
  })

  test('learns what a collection pins', async () => {
    const own = embeddings()
    const { id, name, hash, dimensions, most_tokens } = await ownEmbedder()
    expect(await own.models(asked('collection'))).toEqual([{ id, name, hash, dimensions, most_tokens }])
    await own.close()
  })

  test('is refused for good once the budget is spent, or the purpose has ended', async () => {
    const own = embeddings()
    const document = { ...asked('document'), budget_tokens: tokensOfText }
    await own.embed([text], document)
    const spent = own.embed([text], document)
    await expect(spent).rejects.toMatchObject({ code: 'budget_exceeded', permanent: true })
    await closeLedger(tenant.id, document.purpose)
    await expect(own.embed([text], document)).rejects.toMatchObject({ status: 409, permanent: true })
    await own.close()
  })

  test('embeds by a tenant’s connector, and by nobody else’s', async () => {
    const own = embeddings()
    const connector_id = await makeConnector(tenant.id, provider.base_url)
    const { vectors } = await own.embed([text], { ...asked('document'), connector_id, model: 'remote' })
    expect(vectors).toHaveLength(1)
    const other = { ...asked('document'), tenant_id: (await makeTenant()).id, connector_id }
    await expect(own.embed([text], other)).rejects.toMatchObject({ code: 'not_found', permanent: true })
    await own.close()
  })
})
