import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { RagDocument } from '../../models/retrieval/documents.ts'
import { partBytes } from '../../models/retrieval/uploads.ts'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { platform, startAll } from '../support/platform.ts'
import { sectioned, wordOf } from '../support/rag/texts.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// What the index has of a document if a process is killed on its way: each chunk once.

const parts = 300

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
  const subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  await (await ragStoreOf(tenant.owner).enable(subnet.id)).operation.success()
  await (await collectionsOf(tenant.owner).create({ name: 'docs' })).operation.success()
})
afterEach(startAll)
afterAll(removeTenants)

/** Kills a role of the platform, or the store itself, which comes back. */
async function kill(what: string): Promise<void> {
  if (what !== 'store') return platform.restartKilled(what as 'worker')
  const store = await instanceKinds.container.model
    .findOne({ tenant_id: tenant.id, managed_by: { $ne: null } })
    .lean()
  await engine.kill(store?._id ?? '')
}

/** Also after it was killed when all was done. */
const storeAnswers = () => eventually(async () => (await ragStoreOf(tenant.owner).now()).ready)

const cases = (['worker', 'model-gateway', 'store', 'host', 'temporal', 'mongodb', 'api'] as const).flatMap(
  (what) => ['reading', 'embedding', 'putting'].map((step) => ({ what, step })),
)

asRoot('a document', () => {
  test.each(sampled(cases, 4))(
    'is whole in the index if $what is killed at the step "$step"',
    async ({ what, step }) => {
      const name = `${what}-${step}`
      await (await collectionsOf(tenant.owner).create({ name })).operation.success()
      const documents = documentsOf(tenant.owner, name)
      const { id, operation } = await documents.upload('parts.md', sectioned(parts))
      await eventually(async () => {
        const { step: present, state } = await operation.now()
        return present?.startsWith(step) || !['pending', 'running'].includes(state)
      })
      await kill(what)
      await operation.success()
      await storeAnswers()
      expect(await documents.get(id)).toMatchObject({ status: 'ready', stage: 'ready', chunks: parts })
      expect(await (await storeAtWork(tenant.id)).stats(name)).toMatchObject({
        documents: 1,
        chunks: parts,
      })
      for (const index of [0, 127, 128, parts - 1]) {
        const [best] = await documents.search(wordOf(index), { mode: 'text' })
        expect([best?.headings, best?.document.id]).toEqual([[`Part ${index}`], id])
      }

      const { operation: deletion } = await documents.delete(id)
      await kill(what)
      await deletion.success()
      await storeAnswers()
      expect(await (await storeAtWork(tenant.id)).stats(name)).toMatchObject({ documents: 0, chunks: 0 })
      expect(await documents.list()).toEqual([])
    },
  )

  test.each(['api', 'worker', 'mongodb'] as const)(
    'that is sent in parts goes on if %s is killed, and is whole',
    async (what) => {
      const documents = documentsOf(tenant.owner, 'docs')
      const content = Buffer.concat([Buffer.from(`Sent: ${what}.`), Buffer.alloc(3 * partBytes, '\n')])
      const { id, operation, sent } = await documents.announce(`sent-${what}.txt`, content)
      await sent.add(0, content.subarray(0, partBytes))
      const rest = sent.add(partBytes, content.subarray(partBytes)).catch(() => null)
      await kill(what)
      await rest
      await sent.all(content, partBytes)
      await operation.success()
      expect(await documents.get(id)).toMatchObject({ status: 'ready', version: 1, chunks: 1, upload: null })
      await (await documents.delete(id)).operation.success()
    },
  )

  test('whose worker is killed goes on at the next batch', async () => {
    const documents = documentsOf(tenant.owner, 'docs')
    const { id, operation } = await documents.upload('batches.md', sectioned(parts))
    const before = await eventually(async () => {
      const { chunks_embedded, operation_id } = await documents.get(id)
      return (chunks_embedded > 0 || operation_id === null) && chunks_embedded
    })
    await platform.kill('worker')
    const kept = await RagDocument.findOne({ _id: id, tenant_id: tenant.id }).lean()
    await platform.start('worker')
    if (before > 0) {
      const [first] = kept?.embedded ?? []
      const next = await eventually(async () => {
        const now = await RagDocument.findOne({ _id: id, tenant_id: tenant.id }).lean()
        return (now?.embedded.length ?? 0) > (kept?.embedded.length ?? 0) || now?.stage === 'ready'
          ? now
          : null
      })
      if (next.stage !== 'ready') expect(next.embedded[0]).toEqual(first)
    }
    await operation.success()
    await (await documents.delete(id)).operation.success()
  })

  test('waits for a store that is away, and is cancelled there', async () => {
    const documents = documentsOf(tenant.owner, 'docs')
    const { id } = await documents.make('waits.txt', 'first')
    await platform.kill('host')
    const { operation } = await documents.upload('waits.txt', 'second')
    await eventually(async () => (await documents.get(id)).stage !== 'queued')
    expect(await documents.askSearch({ query: 'first', mode: 'text' })).toMatchObject({ status: 503 })
    await operation.cancel()
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    expect(await documents.get(id)).toMatchObject({ status: 'error', version: 2, indexed_version: 1 })
    await platform.start('host')
    await eventually(async () => (await documents.askSearch({ query: 'first', mode: 'text' })).status === 200)
    expect((await documents.search('first', { mode: 'text' }))[0]?.document.id).toBe(id)
    await (await documents.retry(id)).operation.success()
    expect((await documents.search('second', { mode: 'text' }))[0]?.document.id).toBe(id)
  })
})
