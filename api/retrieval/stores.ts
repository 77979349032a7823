import { z } from 'zod'
import { NotFound } from '../../lib/problem.ts'
import { storeCondition, storeSizes } from '../../models/retrieval/store-condition.ts'
import { acceptRagStore, acceptStoreVerb } from '../../models/retrieval/store-acceptance.ts'
import {
  acceptStoreRestore,
  acceptStoreSnapshot,
  diskOfSnapshots,
  setSnapshotRules,
} from '../../models/retrieval/snapshots.ts'
import {
  endpointOf,
  openStoreSecrets,
  RagStore,
  type RagStoreDocument,
  ragStoreResource,
  ragStoreStates,
  storeEngines,
  usuallyKept,
} from '../../models/retrieval/stores.ts'
import { Snapshot } from '../../models/storage/snapshots.ts'
import { accepting, acceptingOrThere } from '../accept.ts'
import { timingFields, needTiming } from '../deploy/timing.ts'
import { Id, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { SnapshotName } from '../storage/disks.ts'
import { SnapshotView, toView as toSnapshotView } from '../storage/snapshots.ts'

const Sizes = z.strictObject({
  collections: z.int(),
  documents: z.int(),
  chunks: z.int(),
  bytes: z.int().describe('Bytes of the documents as they were uploaded'),
})

const StoreView = z
  .strictObject({
    enabled: z.boolean().describe('Whether the tenant has a store'),
    ready: z.boolean().describe('Whether the store answers'),
    status: z.enum(ragStoreStates.all).nullable(),
    status_reason: z.string().nullable().describe('Why it is not ready'),
    operation_id: Id.nullable().describe('The open operation'),
    id: Id.nullable(),
    subnet_id: Id.nullable(),
    endpoint: z.string().nullable().describe('The URL for the tenant’s instances in the VPC of the subnet'),
    certificate_pem: z
      .string()
      .nullable()
      .describe('The self-signed certificate that clients of the endpoint must trust'),
    engine: z.enum(storeEngines).nullable(),
    cpu_cores: z.number().nullable(),
    memory_mib: z.int().nullable(),
    size_gib: z.int().nullable(),
    snapshots: z
      .strictObject({
        frequency: z
          .string()
          .nullable()
          .describe('A cron expression of five fields; null: snapshots are taken only on request'),
        timezone: z.string().nullable(),
        keep: z.int(),
        next_at: Timestamp.nullable(),
      })
      .nullable()
      .describe('When snapshots of its disk are taken, and how many are kept'),
    sizes: Sizes.nullable(),
    created_at: Timestamp.nullable(),
  })
  .meta({ id: 'RagStore' })
type StoreView = z.output<typeof StoreView>

const disabled: StoreView = {
  enabled: false,
  ready: false,
  status: null,
  status_reason: null,
  operation_id: null,
  id: null,
  subnet_id: null,
  endpoint: null,
  certificate_pem: null,
  engine: null,
  cpu_cores: null,
  memory_mib: null,
  size_gib: null,
  snapshots: null,
  sizes: null,
  created_at: null,
}

/** Without a look at the store itself: an accepted operation is under way. */
const toView = (store: RagStoreDocument): StoreView => ({
  enabled: true,
  ready: false,
  status: store.status,
  status_reason: store.status_reason,
  operation_id: store.operation_id,
  id: store._id,
  subnet_id: store.subnet_id,
  endpoint: endpointOf(store),
  certificate_pem: store.certificate,
  engine: store.engine,
  cpu_cores: store.cpu_cores,
  memory_mib: store.memory_mib,
  size_gib: store.size_gib,
  snapshots: {
    frequency: store.snapshot_timing?.frequency ?? null,
    timezone: store.snapshot_timing?.timezone ?? null,
    keep: store.snapshots_kept,
    next_at: timeOrNull(store.next_snapshot_at),
  },
  sizes: null,
  created_at: time(store.created_at),
})

export const ragStores = [
  operation({
    method: 'GET',
    path: '/api/v1/rag',
    permission: 'rag:read',
    summary: 'Get the tenant’s retrieval store, and whether it is enabled and answers',
    responses: { 200: StoreView },
    async handle({ caller: { tenant_id } }) {
      const store = await RagStore.findOne({ tenant_id }).lean()
      if (!store) return disabled
      const [{ ready, reason }, sizes] = await Promise.all([storeCondition(store), storeSizes(store)])
      const isReady = ready && (store.status === 'ready' || store.status === 'snapshotting')
      return {
        ...toView(store),
        ready: isReady,
        status_reason: store.status_reason ?? (ready ? null : reason),
        sizes,
      }
    },
  }),

  operation({
    method: 'POST',
    path: '/api/v1/rag/enable',
    permission: 'rag:create',
    summary: 'Create the tenant’s store in a subnet, or get the one that exists',
    body: z.strictObject({
      subnet_id: Id.describe('The subnet of the store; the tenant’s instances in its VPC reach it'),
      engine: z
        .enum(storeEngines)
        .optional()
        .describe(
          '`sqlite` (the default), or `pgvector` for more than about 300,000 chunks; it cannot be changed',
        ),
      cpu_cores: z.number().min(0.1).max(64).default(1),
      memory_mib: z
        .int()
        .min(512)
        .max(262_144)
        .default(1024)
        .describe('The memory of the store, in MiB; 100,000 chunks take about 60 MiB'),
      size_gib: z.int().min(1).max(16_384).default(10).describe('The size of its disk, in GiB'),
    }),
    responses: { 200: StoreView, 202: StoreView },
    refuses: [404],
    handle: ({ caller, body }) => acceptingOrThere(caller, toView, (by) => acceptRagStore(by, body)),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/rag/disable',
    permission: 'rag:delete',
    summary: 'Delete the store with its collections and documents',
    responses: { 202: StoreView },
    refuses: [404],
    handle: ({ caller }) => accepting(caller, toView, (by) => acceptStoreVerb(by, 'delete')),
  }),

  operation({
    method: 'GET',
    path: '/api/v1/rag/credentials',
    permission: 'rag:update',
    summary: 'Get the token with which the tenant’s instances call the store (audited)',
    responses: {
      200: z
        .strictObject({ endpoint: z.string(), token: z.string(), certificate_pem: z.string() })
        .meta({ id: 'RagCredentials' }),
    },
    reads_secret: true,
    refuses: [404],
    async handle({ caller: { tenant_id } }) {
      const store = await RagStore.findOne({ tenant_id }).lean()
      if (!store) throw new NotFound(ragStoreResource.title)
      const { token } = await openStoreSecrets(store)
      return { endpoint: endpointOf(store), token, certificate_pem: store.certificate }
    },
  }),

  operation({
    method: 'POST',
    path: '/api/v1/rag/rotate',
    permission: 'rag:update',
    summary:
      'Replace the store’s token and certificate; the store restarts, and the former token stops working',
    responses: { 202: StoreView },
    refuses: [404],
    handle: ({ caller }) => accepting(caller, toView, (by) => acceptStoreVerb(by, 'rotate')),
  }),

  list({
    path: '/api/v1/rag/snapshots',
    permission: 'rag:read',
    summary: 'List the snapshots of the store’s disk',
    model: Snapshot,
    view: SnapshotView,
    toView: toSnapshotView,
    scope: async (caller) => ({ tenant_id: caller.tenant_id, disk_id: await diskOfSnapshots(caller) }),
  }),

  operation({
    method: 'PUT',
    path: '/api/v1/rag/snapshots',
    permission: 'rag:update',
    summary: 'Set when snapshots of the store’s disk are taken, and how many are kept',
    body: z.strictObject({
      frequency: timingFields.frequency.nullable().describe('A cron expression of five fields; null: none'),
      timezone: timingFields.timezone.default('UTC'),
      keep: z
        .int()
        .min(1)
        .max(100)
        .default(usuallyKept)
        .describe('How many snapshots to keep; a new snapshot removes older ones beyond this number'),
    }),
    responses: { 200: StoreView },
    refuses: [404],
    async handle({ caller, body: { frequency, timezone, keep } }) {
      const timing = frequency === null ? null : { frequency, timezone }
      if (timing) needTiming(timing)
      return toView(await setSnapshotRules(caller, { timing, keep }))
    },
  }),

  operation({
    method: 'POST',
    path: '/api/v1/rag/snapshots',
    permission: 'rag:update',
    summary: 'Take a snapshot of the store’s disk without stopping the store',
    responses: { 202: StoreView },
    refuses: [404],
    handle: ({ caller }) => accepting(caller, toView, acceptStoreSnapshot),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/rag/restore',
    permission: 'rag:update',
    summary: 'Restore the store from a snapshot, and bring it up to date with the documents',
    body: z.strictObject({ snapshot: SnapshotName.describe('The name of one of the store’s snapshots') }),
    responses: { 202: StoreView },
    refuses: [404],
    handle: ({ caller, body }) => accepting(caller, toView, (by) => acceptStoreRestore(by, body)),
  }),
]
