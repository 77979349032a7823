import { collectionsOf, documentsOf } from '../../support/clients/rag.ts'
import { Operation } from '../../support/client.ts'
import { ragStoreOf } from '../../support/clients/rag-store.ts'
import { eventually } from '../../support/eventually.ts'
import { makeConnector } from '../../support/model-gateway.ts'
import { startModelProvider } from '../../support/model-provider/server.ts'
import { sectioned } from '../../support/rag/texts.ts'
import { modelProviderPorts } from '../../support/stack.ts'
import { newNic, type Stories, tenant } from '../world.ts'

const store = ragStoreOf(tenant.owner)
const collections = collectionsOf(tenant.owner)
const documents = documentsOf(tenant.owner, 'docs')
const broken = Buffer.from('%PDF-1.7\nnothing more')

/** The id of a document of this name; one that cannot be read if there is none. */
async function failed(name: string): Promise<string> {
  const [there] = await documents.list(`?name=${name}`)
  if (there) return there.id
  const { id, operation } = await documents.upload(name, broken)
  await operation.end()
  return id
}

/** Begins to make the store, or to make it anew. */
const enabling = async () => store.enable((await store.now()).subnet_id ?? (await newNic()).subnet_id)

async function enabled(): Promise<void> {
  if ((await store.now()).status !== 'ready') await (await enabling()).operation.success()
}

/** A change of the embedder, which ends before the provider does. */
async function changed(work: (embedder: { connector: string; model: string }) => Promise<Operation>) {
  const away = Promise.withResolvers<void>()
  const provider = await startModelProvider(
    (model, count) => (model === 'gated' && count > 1 ? { waits: { after: 0, for: away.promise } } : {}),
    modelProviderPorts.embeddings,
  )
  try {
    const connector = await makeConnector(tenant.id, provider.base_url, 'openai_compatible')
    const operation = await work({ connector, model: 'words' })
    await operation.end()
    return operation
  } finally {
    away.resolve()
    await provider.close()
  }
}

/** A new one, which is as old as the documents: a restore indexes them once more. */
async function snapshot(): Promise<string> {
  await (await store.takeSnapshot()).operation.success()
  const [name = ''] = await store.snapshots()
  return name
}

/** The operation that indexes a document again. */
async function reindexing(id: string): Promise<string> {
  const path = `/api/v1/operations?resource_id=${id}&verb=reindex`
  const { items } = await tenant.owner.get<{ items: { id: string }[] }>(path)
  return items[0]?.id ?? ''
}

/** In this order, on one store. */
export const retrievalStories: Stories = {
  'createRagStore.cancelled': async () => {
    const { operation } = await enabling()
    await eventually(async () => (await operation.now()).step?.startsWith('starting'))
    await operation.cancel()
    return operation
  },
  'enableRagStore.ready': async () => (await enabling()).operation,
  'rotateRagStore.ready': async () => {
    await enabled()
    return (await store.rotate()).operation
  },
  'createRagCollection.ready': async () => {
    await enabled()
    return (await collections.create({ name: 'docs' })).operation
  },
  'createRagDocument.ready': async () => (await documents.upload('a.md', sectioned(3))).operation,
  'createRagDocument.turns': async () => (await documents.upload('long.md', sectioned(2_500))).operation,
  'createRagDocument.sent': async () => {
    const content = Buffer.from(sectioned(3))
    const { operation, sent } = await documents.announce('sent.md', content)
    await sent.all(content)
    return operation
  },
  'updateRagDocument.damaged': async () => {
    const { operation, sent } = await documents.announce('sent.md', Buffer.from(sectioned(4)))
    await sent.all(Buffer.from(sectioned(4).toUpperCase()))
    return operation
  },
  'createRagDocument.failed': async () => (await documents.upload('b.pdf', broken)).operation,
  'createRagDocument.cancelled': async () => {
    const { id, operation } = await documents.upload('c.md', sectioned(1_000))
    await eventually(async () => (await documents.get(id)).stage === 'embedding')
    await operation.cancel()
    return operation
  },
  'updateRagDocument.ready': async () => (await documents.upload('a.md', sectioned(4))).operation,
  'retryRagDocument.failed': async () => (await documents.retry(await failed('b.pdf'))).operation,
  'snapshotRagStore.ready': async () => {
    await store.askSnapshots({ frequency: null, keep: 1 })
    await (await store.takeSnapshot()).operation.success()
    return (await store.takeSnapshot()).operation
  },
  'restoreRagStore.ready': async () => (await store.restore(await snapshot())).operation,
  'reindexRagDocument.ready': async () => {
    const name = await snapshot()
    const [document] = await documents.list('?name=a.md')
    await (await store.restore(name)).operation.success()
    return new Operation(tenant.owner, `/api/v1/operations/${await reindexing(document?.id ?? '')}`)
  },
  'deleteRagDocument.purged': async () => {
    const { id } = await documents.make('purged.md', sectioned(2))
    await snapshot()
    return (await documents.purge(id)).operation
  },
  'deleteRagDocument.deleted': async () => (await documents.delete(await failed('b.pdf'))).operation,
  'updateRagCollection.ready': () =>
    changed(async (embedder) => (await collections.embedBy('docs', embedder)).operation),
  'updateRagCollection.turns': async () =>
    (await collections.embedBy('docs', 'all-MiniLM-L6-v2-int8')).operation,
  'updateRagCollection.cancelled': () =>
    changed(async (embedder) => {
      const { operation } = await collections.embedBy('docs', { ...embedder, model: 'gated' })
      await eventually(async () => (await operation.now()).step !== null)
      await operation.cancel()
      return operation
    }),
  'deleteRagCollection.deleted': async () => (await collections.delete('docs')).operation,
  'deleteRagStore.deleted': async () => (await store.disable()).operation,
}
