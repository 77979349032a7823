import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { makeConnector } from '../support/model-gateway.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { platform, startAll } from '../support/platform.ts'
import { sectioned, wordOf } from '../support/rag/texts.ts'
import { sampled } from '../support/sampled.ts'
import { modelProviderPorts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// A process is killed while a collection changes its embedder: in the end it has the next one for each chunk, and nothing else.

const parts = 400

let provider: ModelProvider
let tenant: TestTenant
let connector: string
beforeAll(async () => {
  provider = await startModelProvider(() => ({}), modelProviderPorts.embeddings)
  tenant = await makeTenant()
  const subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  await (await ragStoreOf(tenant.owner).enable(subnet.id)).operation.success()
  connector = await makeConnector(tenant.id, provider.base_url, 'openai_compatible')
  const first = { connector, model: 'first' }
  await (await collectionsOf(tenant.owner).create({ name: 'docs', embedder: first })).operation.success()
  await documentsOf(tenant.owner, 'docs').make('parts.md', sectioned(parts))
})
afterEach(startAll)
afterAll(async () => {
  await removeTenants()
  await provider.close()
})

const collections = () => collectionsOf(tenant.owner)
const documents = () => documentsOf(tenant.owner, 'docs')
const stats = async () => (await storeAtWork(tenant.id)).stats('docs')

/** Kills a role of the platform, or the store itself. */
async function kill(what: string): Promise<void> {
  if (what !== 'store') return platform.restartKilled(what as 'worker')
  const store = await instanceKinds.container.model
    .findOne({ tenant_id: tenant.id, managed_by: { $ne: null } })
    .lean()
  await engine.kill(store?._id ?? '')
}

/** Each chunk is found by the embedder that the record names, and the store has no other vectors. */
async function expectWhole(): Promise<void> {
  await eventually(async () => (await ragStoreOf(tenant.owner).now()).ready)
  const { embedder, next_embedder } = await collections().get('docs')
  expect(next_embedder).toBe(null)
  const { name, hash, dimensions } = embedder
  expect(await stats()).toMatchObject({
    embedder: { name, hash, dimensions },
    aside: null,
    documents: 1,
    chunks: parts,
  })
  for (const index of [0, 127, 128, parts - 1]) {
    // The provider's model has one vector for some of the words.
    const hits = await documents().search(wordOf(index), { mode: 'vector', k: 10 })
    expect(hits.map(({ headings }) => headings)).toContainEqual([`Part ${index}`])
  }
}

const cases = (['worker', 'model-gateway', 'store', 'host', 'temporal', 'mongodb', 'api'] as const).flatMap(
  (what) => ['embedding', 'changing'].map((step) => ({ what, step })),
)

asRoot('a change of the embedder', () => {
  test.each(sampled(cases, 4))('is whole if $what is killed at the step "$step"', async ({ what, step }) => {
    const model = `${what}-${step}`
    const { operation } = await collections().embedBy('docs', { connector, model })
    await eventually(async () => {
      const { step: present, state } = await operation.now()
      return present?.startsWith(step) || !['pending', 'running'].includes(state)
    })
    await kill(what)
    await operation.success()
    expect((await collections().get('docs')).embedder.name).toBe(model)
    await expectWhole()
  })

  test('that is cancelled while the store is away leaves nothing once it is back', async () => {
    const { operation } = await collections().embedBy('docs', { connector, model: 'interrupted' })
    await eventually(async () => (await operation.now()).step !== null)
    await platform.kill('host')
    await operation.cancel()
    await platform.start('host')
    await operation.end()
    await expectWhole()
  })
})
