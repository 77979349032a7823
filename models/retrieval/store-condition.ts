import type { Store } from '../../images/rag/store.ts'
import { Container } from '../compute/containers.ts'
import { RagCollection } from './collections.ts'
import { RagDocument } from './documents.ts'
import { storeAt } from './store-door.ts'
import { StoreError } from './store-rules.ts'
import { RagStore, type RagStoreDocument } from './stores.ts'

/** A store that takes longer to say that it is ready is not. */
const looksForMs = 3_000

interface Within {
  timeoutMs: number
}

/** The way to a store, by the host of its container. Null: it is on no host. */
export async function doorOf(
  { tenant_id, container_id }: Pick<RagStoreDocument, 'tenant_id' | 'container_id'>,
  within?: Within,
): Promise<ReturnType<typeof storeAt> | null> {
  if (container_id === null) return null
  const container = await Container.findOne({ _id: container_id, tenant_id }, { host_id: 1 }).lean()
  return container?.host_id
    ? storeAt({ host_id: container.host_id, instance_id: container_id }, within)
    : null
}

/** The way to a tenant's store. Throws `unavailable` if there is none, it is on no host, or it is being restored. */
export const storeAtWork = async (tenant_id: string, within?: Within): Promise<Store> =>
  (await storeWithDisk(tenant_id, within)).store

/** The same with the disk on which it is: that of its container, for as long as there is this container. */
export async function storeWithDisk(
  tenant_id: string,
  within?: Within,
): Promise<{ store: Store; disk_id: string | null }> {
  const its = await RagStore.findOne({ tenant_id }, { container_id: 1, disk_id: 1 }).lean()
  const container = its?.container_id
    ? await Container.findOne({ _id: its.container_id, tenant_id }, { host_id: 1, disks: 1 }).lean()
    : null
  if (!container?.host_id) throw new StoreError('unavailable', 'The store is on no host')
  const { _id: instance_id, host_id, disks } = container
  const disk_id = disks[0]?.disk_id ?? null
  // A restoration may still go back to the former disk: what is written here would be lost.
  if (disk_id !== its?.disk_id) throw new StoreError('unavailable', 'The store is being restored')
  return { store: storeAt({ host_id, instance_id }, within), disk_id }
}

/** Whether the store answers, and why not. */
export async function storeCondition(
  store: Pick<RagStoreDocument, 'tenant_id' | 'container_id'>,
): Promise<{ ready: boolean; reason: string | null }> {
  const door = await doorOf(store, { timeoutMs: looksForMs })
  return door ? door.health() : { ready: false, reason: 'The store is on no host' }
}

/** What is in a store, by the platform's records. */
export async function storeSizes({ tenant_id }: Pick<RagStoreDocument, 'tenant_id'>) {
  const [collections, [sums]] = await Promise.all([
    RagCollection.countDocuments({ tenant_id }),
    RagDocument.aggregate<{ documents: number; chunks: number; bytes: number }>([
      { $match: { tenant_id } },
      {
        $group: {
          _id: null,
          documents: { $sum: 1 },
          chunks: { $sum: '$chunks' },
          bytes: { $sum: '$size_bytes' },
        },
      },
    ]),
  ])
  const { documents = 0, chunks = 0, bytes = 0 } = sums ?? {}
  return { collections, documents, chunks, bytes }
}
