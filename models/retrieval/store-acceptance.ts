import { InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import { tenantResource } from '../identity/tenants.ts'
import { needSameManager } from '../managed.ts'
import { subnetResource } from '../network/subnets.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import {
  leastMemoryMib,
  newHostname,
  newStoreSecrets,
  RagStore,
  type RagStoreDocument,
  ragStoreResource,
  type StoreEngine,
  usuallyKept,
} from './stores.ts'

export interface NewRagStore
  extends Pick<RagStoreDocument, 'subnet_id' | 'cpu_cores' | 'memory_mib' | 'size_gib'> {
  /** Undefined: the one that is there, or SQLite. */
  engine?: StoreEngine | undefined
}

type StoreAccepted = Accepted<RagStoreDocument> | { document: RagStoreDocument; operation: null }

/**
 * Accepts the tenant's store, or returns the one that it has. A store whose creation failed is made anew. Throws NotFound
 * (the subnet), ManagedResource, OperationInProgress while it is being deleted, InvalidInput, `store_elsewhere` and
 * `store_engine`.
 */
export async function acceptRagStore(
  by: By,
  { subnet_id, engine, ...size }: NewRagStore,
): Promise<StoreAccepted> {
  const { tenant_id } = by
  const hostname = newHostname()
  const secrets = await newStoreSecrets(tenant_id, hostname)
  return transaction(async (): Promise<StoreAccepted> => {
    await lockParent(tenantResource, tenant_id, tenant_id) // one of two creations at once finds the other's
    const there = await RagStore.findOne({ tenant_id }).lean()
    if (there) return again(by, there, subnet_id, engine)
    const made = engine ?? 'sqlite'
    checkMemory(made, size.memory_mib)
    needSameManager('subnet', await lockParent(subnetResource, tenant_id, subnet_id), { managed_by: null })
    return create(by, ragStoreResource, {
      fields: {
        name: 'rag',
        tags: {},
        subnet_id,
        engine: made,
        ...size,
        hostname,
        ...secrets,
        secrets_of: null,
        disk_id: null,
        container_id: null,
        former_disks: [],
        snapshot_timing: null,
        next_snapshot_at: null,
        snapshots_kept: usuallyKept,
        turns: 0,
      },
    })
  }, tenant_id)
}

function checkMemory(engine: StoreEngine, memoryMib: number): void {
  const least = leastMemoryMib[engine]
  if (memoryMib < least)
    throw new InvalidInput(422, [
      { pointer: '/memory_mib', message: `must be at least ${least} with ${engine}` },
    ])
}

async function again(
  by: By,
  there: RagStoreDocument,
  subnet_id: string,
  engine: StoreEngine | undefined,
): Promise<StoreAccepted> {
  if (there.subnet_id !== subnet_id)
    throw new Problem(
      409,
      'store_elsewhere',
      'The store is in another subnet',
      `The store is in the subnet ${there.subnet_id}, and cannot move: disable retrieval first, which deletes its documents`,
      { extensions: { subnet_id: there.subnet_id } },
    )
  const present = there.engine
  if (engine && engine !== present)
    throw new Problem(
      409,
      'store_engine',
      'The store has another engine',
      `The store has the engine ${present}, and keeps it: disable retrieval first, which deletes its documents, then enable it with ${engine} and upload them again`,
      { extensions: { engine: present } },
    )
  if (there.status !== 'error' && there.status !== 'deleting') return { document: there, operation: null }
  return begin(by, ragStoreResource, there._id, 'enable')
}

/** The tenant's store, whatever its status. Throws `retrieval_disabled`. */
export async function storeOfTenant({ tenant_id }: Pick<By, 'tenant_id'>): Promise<RagStoreDocument> {
  const store = await RagStore.findOne({ tenant_id }).lean()
  if (store) return store
  throw new Problem(
    409,
    'retrieval_disabled',
    'Retrieval is not enabled',
    'The tenant has no store: enable retrieval first',
  )
}

/** Throws NotFound if retrieval is not enabled, and as `begin`. */
export async function acceptStoreVerb(
  by: By,
  verb: 'rotate' | 'delete',
): Promise<Accepted<RagStoreDocument>> {
  const store = await RagStore.findOne({ tenant_id: by.tenant_id }, { _id: 1 }).lean()
  if (!store) throw new NotFound(ragStoreResource.title)
  return begin(by, ragStoreResource, store._id, verb)
}

accepts(ragStoreResource, {})
