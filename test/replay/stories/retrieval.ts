import { collectionsOf, documentsOf } from '../../support/clients/rag.ts'
import { Operation } from '../../support/client.ts'
import { ragStoreOf } from '../../support/clients/rag-store.ts'
import { eventually } from '../../support/eventually.ts'
import { sectioned } from '../../support/rag/texts.ts'
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
  'createRagCollection.ready': async () => {
    const { subnet_id } = await newNic()
    await (await store.enable(subnet_id)).operation.success()
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
  'deleteRagCollection.deleted': async () => (await collections.delete('docs')).operation,
}
