import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Tenant } from '../../models/identity/tenants.ts'
import { ledgerOf } from '../../models/llm/ledgers.ts'
import { RagCollection } from '../../models/retrieval/collections.ts'
import { RagDocument } from '../../models/retrieval/documents.ts'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { connectorsOf } from '../support/clients/connectors.ts'
import { eventually } from '../support/eventually.ts'
import { makeConnector, providerKey } from '../support/model-gateway.ts'
import { wordDimensions } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { sectioned, wordOf } from '../support/rag/texts.ts'
import { modelProviderPorts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// A collection's embedder: models of providers, and the change to another one while the former serves.

const ownModel = 'all-MiniLM-L6-v2-int8'

/** Models whose name begins with `gated` answer nothing but their first request until their gate is open. */
const gates = new Map<string, { opened: Promise<void>; open: () => void }>()
function gateOf(model: string) {
  const known = gates.get(model)
  if (known) return known
  const { promise: opened, resolve: open } = Promise.withResolvers<void>()
  const gate = { opened, open }
  gates.set(model, gate)
  return gate
}

let provider: ModelProvider
let tenant: TestTenant
let connector: string
beforeAll(async () => {
  provider = await startModelProvider((model, count) => {
    if (model === 'unknown') return { status: 404 }
    if (model === 'away') return { status: 503 }
    if (model === 'refusing') return count === 1 ? {} : { status: 400 }
    return model.startsWith('gated') && count > 1 ? { waits: { after: 0, for: gateOf(model).opened } } : {}
  }, modelProviderPorts.embeddings)
  tenant = await makeTenant()
  const subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  await (await ragStoreOf(tenant.owner).enable(subnet.id)).operation.success()
  connector = await makeConnector(tenant.id, provider.base_url, 'openai_compatible')
})
afterAll(async () => {
  for (const { open } of gates.values()) open()
  await removeTenants()
  await provider.close()
})

const collections = () => collectionsOf(tenant.owner)
const remote = (model: string) => ({ connector, model })
const stats = async (name: string) => (await storeAtWork(tenant.id)).stats(name)
const best = async (name: string, query: string, mode = 'vector') =>
  (await documentsOf(tenant.owner, name).search(query, { mode, k: 1 }))[0]

/** A collection of the platform's own model with one document of so many chunks. */
async function makeCollection(name: string, parts = 3): Promise<string> {
  await (await collections().create({ name })).operation.success()
  return (await documentsOf(tenant.owner, name).make('parts.md', sectioned(parts))).id
}

/** A change that is under way: no vector has come yet. */
async function beginChange(name: string, model: string) {
  const { operation } = await collections().embedBy(name, remote(model))
  await eventually(() => provider.askedFor(model).length > 1)
  return operation
}

const limitTokens = (tokens: number) =>
  Tenant.updateOne({ _id: tenant.id }, { $set: { 'limits.max_llm_tokens_month': tokens } })

/** The collection has its former embedder, and nothing of the change is left. */
async function expectUntouched(name: string): Promise<void> {
  expect(await collections().get(name)).toMatchObject({
    status: 'ready',
    operation_id: null,
    embedder: { name: ownModel },
    next_embedder: null,
  })
  expect(await stats(name)).toMatchObject({ embedder: { name: ownModel }, aside: null })
  expect((await best(name, wordOf(1)))?.headings).toEqual(['Part 1'])
}

asRoot('a model of a connector', () => {
  test('embeds the documents of a collection, and questions to it', async () => {
    const { operation } = await collections().create({ name: 'remote', embedder: remote('words') })
    await operation.success()
    expect((await collections().get('remote')).embedder).toMatchObject({
      name: 'words',
      dimensions: wordDimensions,
      most_tokens: null,
      connector_id: connector,
      hash: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
    const { id, chunks } = await documentsOf(tenant.owner, 'remote').make('parts.md', sectioned(40))
    expect(chunks).toBe(40)
    expect(await best('remote', wordOf(17))).toMatchObject({ document: { id }, headings: ['Part 17'] })
    const asked = provider.askedFor('words')
    expect(asked.every(({ headers }) => headers.authorization === `Bearer ${providerKey}`)).toBe(true)
    // The document's tokens are its own, and the question's are the collection's.
    expect((await ledgerOf(tenant.id, { kind: 'document', id }))?.tokens).toBeGreaterThan(0)
  })

  test('may be named by its provider, whose default connector is used', async () => {
    const { body } = await connectorsOf(tenant.owner).import({
      provider: 'openai_compatible',
      base_url: provider.base_url,
      api_key: providerKey,
    })
    const embedder = { connector: 'openai_compatible', model: 'words' }
    await (await collections().create({ name: 'default', embedder })).operation.success()
    expect((await collections().get('default')).embedder.connector_id).toBe(String(body['id']))
  })

  test('keeps its connector from being deleted', async () => {
    expect(await connectorsOf(tenant.owner).delete(connector)).toMatchObject({
      status: 409,
      body: {
        code: 'connector_in_use',
        uses: [expect.objectContaining({ kind: 'collection', name: 'remote' })],
      },
    })
  })

  test.each([
    [
      'a connector that there is not',
      () => ({ connector: newId(), model: 'words' }),
      422,
      '/embedder/connector',
    ],
    [
      'a provider without a connector',
      () => ({ connector: 'groq', model: 'words' }),
      422,
      '/embedder/connector',
    ],
    ['a model that the provider does not have', () => remote('unknown'), 422, '/embedder/model'],
    ['a provider that does not answer', () => remote('away'), 503, undefined],
    ['an unknown model of the platform', () => 'none', 422, '/embedder'],
    ['nothing', () => null, 422, '/embedder'],
  ])('is refused: %s', async (_, embedder, status, pointer) => {
    for (const answer of [
      await collections().ask({ name: 'refused', embedder: embedder() }),
      await collections().askEmbedder('remote', embedder()),
    ]) {
      expect(answer.status).toBe(status)
      if (pointer) expect(answer.body['errors']).toEqual([expect.objectContaining({ pointer })])
    }
    expect(await collections().list('?name=refused')).toEqual([])
  })

  test('is used by those alone who may use connectors, and by no other tenant', async () => {
    const role = { name: `role-${newId().slice(-12)}`, permissions: ['rag:create', 'rag:read', 'rag:update'] }
    await tenant.owner.ask('POST', '/api/v1/roles', role)
    const user = await tenant.user(role.name)
    const denied = { status: 403, body: { permission: 'connectors:use' } }
    expect(await collectionsOf(user).ask({ name: 'x', embedder: remote('words') })).toMatchObject(denied)
    expect(await collectionsOf(user).askEmbedder('remote', remote('words'))).toMatchObject(denied)

    const other = await makeTenant()
    expect(await collectionsOf(other.owner).askEmbedder('remote', ownModel)).toMatchObject({ status: 404 })
    const place = await makeSubnet(other, (await makeVpc(other)).id)
    await (await ragStoreOf(other.owner).enable(place.id)).operation.success()
    const theirs = await collectionsOf(other.owner).ask({ name: 'x', embedder: remote('words') })
    expect(theirs).toMatchObject({ status: 422, body: { errors: [{ pointer: '/embedder/connector' }] } })
  })
})

asRoot('a change of the embedder', () => {
  test('does nothing if the collection has it', async () => {
    await makeCollection('same')
    const answer = await collections().askEmbedder('same', ownModel)
    expect(answer).toMatchObject({ status: 200, body: { name: 'same', chunks: 3, next_embedder: null } })
  })

  test('leaves the former one to searches and uploads until it is done, and loses nothing', async () => {
    const parts = await makeCollection('changing', 30)
    const documents = documentsOf(tenant.owner, 'changing')
    const { id: leaving } = await documents.make('leaving.txt', 'The ocelot leaves.')
    const operation = await beginChange('changing', 'gated-change')
    expect(await collections().get('changing')).toMatchObject({
      status: 'updating',
      embedder: { name: ownModel },
      next_embedder: { name: 'gated-change', connector_id: connector },
    })
    expect(await collections().askEmbedder('changing', remote('words'))).toMatchObject({
      status: 409,
      body: { code: 'operation_in_progress' },
    })

    expect((await best('changing', wordOf(4)))?.headings).toEqual(['Part 4'])
    const coming = await documents.make('coming.txt', 'The heron comes.')
    expect(coming).toMatchObject({ status: 'ready', indexed_version: 1 })
    expect((await best('changing', 'heron'))?.document.id).toBe(coming.id)
    await documents.make('parts.md', sectioned(30).replace(wordOf(4), 'pangolin'))
    await (await documents.delete(leaving)).operation.success()
    expect(await stats('changing')).toMatchObject({ embedder: { name: ownModel }, chunks: 31 })

    gateOf('gated-change').open()
    await operation.success()
    expect(await collections().get('changing')).toMatchObject({
      status: 'ready',
      operation_id: null,
      embedder: { name: 'gated-change', dimensions: wordDimensions },
      next_embedder: null,
      documents: 2,
      chunks: 31,
    })
    expect(await stats('changing')).toMatchObject({
      embedder: { name: 'gated-change' },
      aside: null,
      documents: 2,
      chunks: 31,
    })
    for (const mode of ['vector', 'text', 'hybrid']) {
      expect((await best('changing', 'heron', mode))?.document.id).toBe(coming.id)
      expect(await best('changing', 'pangolin', mode)).toMatchObject({
        document: { id: parts },
        headings: ['Part 4'],
      })
    }
    expect(await documents.search('ocelot', { mode: 'text' })).toEqual([])
    const { id: collection } = await collections().get('changing')
    expect((await ledgerOf(tenant.id, { kind: 'collection', id: collection }))?.tokens).toBeGreaterThan(0)
  })

  test('has uploads that began before it end with the next one', async () => {
    await makeCollection('overtaken')
    const documents = documentsOf(tenant.owner, 'overtaken')
    // It is embedded by the platform's own model for a while.
    const { id, operation: upload } = await documents.upload('long.md', sectioned(600))
    await eventually(async () => (await documents.get(id)).stage !== 'queued')
    await (await collections().embedBy('overtaken', remote('words'))).operation.success()
    await upload.success()
    expect(await documents.get(id)).toMatchObject({ status: 'ready', indexed_version: 1, chunks: 600 })
    expect(await stats('overtaken')).toMatchObject({ embedder: { name: 'words' }, documents: 2, chunks: 603 })
    // The provider's model has one vector for some of the words.
    const hits = await documents.search(wordOf(555), { mode: 'vector', k: 10 })
    expect(hits.map(({ headings }) => headings)).toContainEqual(['Part 555'])
    expect(await RagDocument.findOne({ _id: id, tenant_id: tenant.id }).lean()).toMatchObject({
      extracted: null,
      made_for: null,
      embedded: [],
    })
  })

  test('goes back to one of the platform’s own, and back again', async () => {
    await makeCollection('forth')
    await (await collections().embedBy('forth', remote('words'))).operation.success()
    await (await collections().embedBy('forth', ownModel)).operation.success()
    await expectUntouched('forth')
    await (await collections().embedBy('forth', remote('words'))).operation.success()
    expect((await best('forth', wordOf(2)))?.headings).toEqual(['Part 2'])
  })

  test('that is cancelled goes back, and leaves nothing', async () => {
    await makeCollection('cancelled')
    const operation = await beginChange('cancelled', 'gated-cancel')
    await operation.cancel()
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    await expectUntouched('cancelled')
  })

  test('that the provider refuses fails with its words, goes back, and leaves nothing', async () => {
    await makeCollection('failing')
    const { operation } = await collections().embedBy('failing', remote('refusing'))
    expect(await operation.end()).toMatchObject({
      state: 'failed',
      error: { code: 'embedding_refused', detail: 'The provider says no' },
    })
    await expectUntouched('failing')
    expect(await collections().get('failing')).toMatchObject({ status_reason: 'The provider says no' })
  })

  test('beyond the tenant’s tokens fails, goes back, and leaves nothing', async () => {
    await makeCollection('spent', 40)
    const operation = await beginChange('spent', 'gated-spent')
    await limitTokens(1)
    gateOf('gated-spent').open()
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'budget_exceeded' } })
    await limitTokens(1_000_000_000)
    await expectUntouched('spent')
  })

  test('is done again if the store is restored from before it', async () => {
    const store = ragStoreOf(tenant.owner)
    await makeCollection('restored')
    await (await store.takeSnapshot()).operation.success()
    const [snapshot = ''] = await store.snapshots()
    await (await collections().embedBy('restored', remote('words'))).operation.success()
    await documentsOf(tenant.owner, 'restored').make('later.txt', 'The heron is later.')
    await (await store.restore(snapshot)).operation.success()
    await eventually(async () => {
      const { embedder, next_embedder, operation_id } = await collections().get('restored')
      return embedder.name === 'words' && next_embedder === null && operation_id === null
    })
    await eventually(
      async () =>
        (await RagDocument.countDocuments({ tenant_id: tenant.id, operation_id: { $ne: null } })) === 0,
    )
    expect(await stats('restored')).toMatchObject({ embedder: { name: 'words' }, aside: null, documents: 2 })
    expect((await best('restored', wordOf(2)))?.headings).toEqual(['Part 2'])
    expect((await best('restored', 'heron'))?.document.name).toBe('later.txt')
  })

  test('that is under way goes on if the store is restored', async () => {
    const store = ragStoreOf(tenant.owner)
    await makeCollection('resumed', 40)
    await (await store.takeSnapshot()).operation.success()
    const [snapshot = ''] = await store.snapshots()
    const operation = await beginChange('resumed', 'gated-restore')
    await (await store.restore(snapshot)).operation.success()
    gateOf('gated-restore').open()
    await operation.success()
    expect(await stats('resumed')).toMatchObject({
      embedder: { name: 'gated-restore' },
      aside: null,
      chunks: 40,
    })
    expect((await best('resumed', wordOf(39)))?.headings).toEqual(['Part 39'])
  })

  test('ends with the collection, and with the store', async () => {
    await makeCollection('leaving')
    const first = await beginChange('leaving', 'gated-leaving')
    await (await collections().delete('leaving')).operation.success()
    expect((await first.end()).state).toBe('cancelled')
    await expect(stats('leaving')).rejects.toMatchObject({ code: 'collection_not_found' })

    await makeCollection('leaving')
    const second = await beginChange('leaving', 'gated-store')
    await (await ragStoreOf(tenant.owner).disable()).operation.success()
    expect((await second.end()).state).toBe('cancelled')
    expect(await RagCollection.countDocuments({ tenant_id: tenant.id })).toBe(0)
    expect(await connectorsOf(tenant.owner).delete(connector)).toMatchObject({ status: 200 })
  })
})

describe('without a store', () => {
  test('no embedder is chosen', async () => {
    const other = await makeTenant()
    expect(await collectionsOf(other.owner).ask({ name: 'x', embedder: remote('words') })).toMatchObject({
      status: 409,
      body: { code: 'retrieval_disabled' },
    })
  })
})
