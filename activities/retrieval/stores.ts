import { setTimeout as delay } from 'node:timers/promises'
import { ApplicationFailure, cancellationSignal } from '@temporalio/activity'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { contentOfSnapshot, noteRestored, surplusSnapshots } from '../../models/retrieval/snapshots.ts'
import { storeCondition } from '../../models/retrieval/store-condition.ts'
import {
  newStoreSecrets,
  RagStore,
  type RagStoreDocument,
  type StoreEngine,
  storeFolder,
} from '../../models/retrieval/stores.ts'
import { Disk } from '../../models/storage/disks.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { permanently } from '../failures.ts'

const { container: containerKind } = instanceKinds

/** What `carryOut` needs to make a store, and what is there of it. */
export interface RagStorePlan {
  disk_id: string | null
  /** The container on this disk. */
  container_id: string | null
  /** What operations that failed have left. */
  other_containers: string[]
  /** The container is to run, and to keep running. */
  runs: boolean
  disk: { name: string; [field: string]: unknown }
  /** The container to create, but for its disk. */
  container: object
  mounted: { mount_path: string; read_only: boolean }
}

// Beside what its disk holds.
const writableGib = 1
const askEveryMs = 250
/** A store with 100,000 chunks reads its files for 1.1 to 1.8 s. */
const startsWithinMs = 120_000

/** Activities of stores of retrieval. But for `awaitRagStore`, short reads and writes of MongoDB. */
export const makeRagStoreActivities = ({ images }: { images: Record<StoreEngine, string> }) => ({
  async planRagStore(id: string): Promise<RagStorePlan> {
    const store = await storeOf(id)
    const { tenant_id, subnet_id, hostname: name, cpu_cores, memory_mib, size_gib } = store
    const managed = await containerKind.model.find({ tenant_id, managed_by: id }).lean()
    const container = managed.find(
      ({ _id, disks }) => _id === store.container_id && disks[0]?.disk_id === store.disk_id,
    )
    const common = { name, tags: {}, managed_by: id, host_id: null }
    return {
      disk_id: store.disk_id,
      container_id: container?._id ?? null,
      other_containers: managed.filter((one) => one !== container).map(({ _id }) => _id),
      runs: container?.desired_state === 'running' && container.status !== 'error',
      disk: { ...common, size_gib, from_snapshot: null, for_kind: 'container', apart_from: [] },
      mounted: { mount_path: storeFolder, read_only: false },
      container: {
        ...common,
        image: images[store.engine],
        command: [],
        entrypoint: [],
        cpu_cores,
        memory_mib,
        disk_gib: writableGib,
        restart_policy: 'always',
        log_cap_mib: 16,
        ports: [],
        health_check: null,
        config_vars: {},
        nics: [{ subnet_id, ip_address: null }],
        start: true,
      },
    }
  },

  async noteRagStore(
    id: string,
    changes: Partial<Pick<RagStoreDocument, 'disk_id' | 'container_id'>>,
  ): Promise<void> {
    await RagStore.updateOne({ _id: id }, { $set: changes }).setOptions(everyTenant)
  },

  /** Makes a new token and certificate, once for each operation. */
  async renewStoreSecrets(id: string, operationId: string): Promise<void> {
    const { tenant_id, hostname } = await storeOf(id)
    const secrets = await newStoreSecrets(tenant_id, hostname)
    await RagStore.updateOne(
      { _id: id, tenant_id, operation_id: operationId, secrets_of: { $ne: operationId } },
      { $set: { ...secrets, secrets_of: operationId } },
    )
  },

  /** Waits until the store answers. Ordinary: it may take a minute. */
  async awaitRagStore(id: string): Promise<void> {
    const signal = cancellationSignal()
    const until = Date.now() + startsWithinMs
    for (;;) {
      const { ready, reason } = await storeCondition(await storeOf(id))
      if (ready) return
      if (Date.now() > until)
        throw ApplicationFailure.nonRetryable(reason ?? 'The store does not answer', 'store_not_ready')
      await delay(askEveryMs, undefined, { signal })
    }
  },

  /** What was indexed until then is in the snapshot for sure (ISO 8601). Throws `not_found`. */
  async planRagRestore(id: string, snapshot: string): Promise<{ until: string }> {
    const store = await storeOf(id)
    const { until } = await permanently(() => contentOfSnapshot(store, snapshot))
    return { until: until.toISOString() }
  },

  async noteRagRestored(
    id: string,
    operationId: string,
    { disk_id, until }: { disk_id: string; until: string },
    next: string,
  ): Promise<void> {
    const store = { ...(await storeOf(id)), operation_id: operationId }
    await noteRestored(store, { disk_id, until: new Date(until) }, next)
  },

  /** The snapshots beyond the number that is kept. */
  surplusRagSnapshots: surplusSnapshots,

  /** The ids of all that the store manages: also what its record does not name, because a killed operation has made it. */
  async partsOfRagStore(id: string): Promise<{ container: string[]; disk: string[] }> {
    const { tenant_id } = await storeOf(id)
    const its = { tenant_id, managed_by: id }
    const [containers, disks] = await Promise.all([
      containerKind.model.find(its, { _id: 1 }).lean(),
      Disk.find(its, { _id: 1 }).lean(),
    ])
    return { container: containers.map(({ _id }) => _id), disk: disks.map(({ _id }) => _id) }
  },
})

export type RagStoreActivities = ReturnType<typeof makeRagStoreActivities>

/** Throws `not_found`. */
async function storeOf(id: string): Promise<RagStoreDocument> {
  const store = await RagStore.findById(id).setOptions(everyTenant).lean()
  if (!store) throw ApplicationFailure.nonRetryable('The store no longer exists', 'not_found')
  return store
}
