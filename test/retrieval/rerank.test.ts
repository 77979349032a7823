import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { ledgerOf } from '../../models/llm/ledgers.ts'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { eventually } from '../support/eventually.ts'
import { makeConnector, providerKey } from '../support/model-gateway.ts'
import { said } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { modelProviderPorts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Searches whose hits a provider's model ranks anew, by the platform's model gateway.

let provider: ModelProvider
let tenant: TestTenant
let connector: string
let collection: string
beforeAll(async () => {
  provider = await startModelProvider((model) => {
    if (model === 'away') return { status: 503 }
    if (model === 'outside') return { ranking: 'outside' }
    return model === 'by-search' ? { figures: 'none' } : {}
  }, modelProviderPorts.rankings)
  tenant = await makeTenant()
  const subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  await (await ragStoreOf(tenant.owner).enable(subnet.id)).operation.success()
  connector = await makeConnector(tenant.id, provider.base_url, 'openai_compatible')
  const created = await collectionsOf(tenant.owner).create({ name: 'pumps' })
  await created.operation.success()
  collection = created.id
  // By words alone, the first has more of "valve", and the model of the tests goes by all words of the question.
  await documents().make('a.md', '# A\n\nValve, valve, valve.\n')
  await documents().make(
    'b.md',
    '# B\n\nSomebody has to open the valve in the morning, before the pumps start.\n',
  )
  await documents().make('c.md', '# C\n\nA boiler needs no valve.\n')
})
afterAll(async () => {
  await removeTenants()
  await provider.close()
})

const documents = () => documentsOf(tenant.owner, 'pumps')
const query = 'open the valve in the morning'
const by = (model: string, over = {}) => ({ connector, model, ...over })
const search = async (rerank: object, over = {}) => {
  const { status, body } = await documents().askSearch({
    query: 'valve morning',
    mode: 'text',
    rerank,
    ...over,
  })
  expect(status).toBe(200)
  return body as unknown as {
    hits: { document: { name: string }; score: number; parts: { rerank: { rank: number } | null } }[]
    rerank: { model: string; ranked: number; failure: { code: string } | null }
  }
}
const callsOf = (model: string) =>
  eventually(async () => {
    const calls = await LlmCall.find({ tenant_id: tenant.id, model, settled: true }).lean()
    return calls.length > 0 && calls
  })

asRoot('a search with a model that ranks', () => {
  test('answers in the order of the model, and the search asks it for more than it answers', async () => {
    const { hits, rerank } = await search(by('good'), { query, k: 1 })
    expect(hits).toMatchObject([{ document: { name: 'b.md' }, parts: { rerank: { rank: 1 } } }])
    expect(rerank).toEqual({ connector_id: connector, model: 'good', ranked: 3, failure: null })
    const [asked] = provider.askedFor('good')
    expect(asked).toMatchObject({ path: '/v1/rerank', headers: { authorization: `Bearer ${providerKey}` } })
    expect(asked?.body['documents']).toContain(
      'B\n\nSomebody has to open the valve in the morning, before the pumps start.',
    )
  })

  test('ranks as many as are asked for, and at least those that it answers', async () => {
    expect((await search(by('two', { top: 2 }), { k: 2 })).rerank.ranked).toBe(2)
    expect((await search(by('all', { top: 1 }), { k: 3 })).rerank.ranked).toBe(3)
  })

  test('has its tokens counted for the collection', async () => {
    await search(by('counted'))
    expect(await callsOf('counted')).toMatchObject([
      {
        endpoint: 'rerank',
        connector_id: connector,
        purpose_kind: 'collection',
        purpose_id: collection,
        counted_by: 'provider',
        input_tokens: said.usage.input,
        output_tokens: 0,
      },
    ])
    expect((await ledgerOf(tenant.id, { kind: 'collection', id: collection }))?.tokens).toBeGreaterThan(0)
    await search(by('by-search'))
    const [call] = await callsOf('by-search')
    expect(call).toMatchObject({ counted_by: 'estimate', output_tokens: 0 })
    expect(call?.input_tokens).toBe(call?.estimated_input_tokens)
  })

  test.each([
    ['away', 'reranker_unavailable'],
    ['outside', 'unreadable_ranking'],
  ])('answers without it if it is %s, and says so', async (model, code) => {
    const plain = (await documents().search('valve morning', { mode: 'text' })).map(
      (hit) => hit.document.name,
    )
    const { hits, rerank } = await search(by(model))
    expect(hits.map((hit) => hit.document.name)).toEqual(plain)
    expect(hits.every(({ parts }) => parts.rerank === null)).toBe(true)
    expect(rerank).toMatchObject({ model, ranked: 0, failure: { code } })
  })

  test('answers without it if its address is none that the platform calls', async () => {
    const inside = await makeConnector(tenant.id, 'http://10.255.255.1:9/v1', 'openai_compatible')
    const { hits, rerank } = await search({ connector: inside, model: 'good' })
    expect(hits.length).toBeGreaterThan(0)
    expect(rerank.failure).toMatchObject({ code: 'address_not_allowed' })
  })

  test('is refused with a connector that there is not, or that has no models', async () => {
    const git = await makeConnector(tenant.id, 'https://git.example', 'gitea')
    for (const one of ['none', git])
      expect(await documents().askSearch({ query, rerank: { connector: one, model: 'good' } })).toMatchObject(
        { status: 422, body: { errors: [{ pointer: '/rerank/connector' }] } },
      )
    expect(await documents().askSearch({ query, rerank: by('good', { top: 101 }) })).toMatchObject({
      status: 422,
      body: { errors: [{ pointer: '/rerank/top' }] },
    })
  })

  test('needs the permission to use connectors', async () => {
    const role = { name: `role-${newId().slice(-12)}`, permissions: ['rag:read'] }
    await tenant.owner.ask('POST', '/api/v1/roles', role)
    const reader = documentsOf(await tenant.user(role.name), 'pumps')
    expect(await reader.askSearch({ query, mode: 'text' })).toMatchObject({
      status: 200,
      body: { rerank: null },
    })
    expect(await reader.askSearch({ query, mode: 'text', rerank: by('good') })).toMatchObject({
      status: 403,
      body: { permission: 'connectors:use' },
    })
  })
})
