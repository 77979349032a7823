import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { makeSelfSigned } from '../../lib/self-signed.ts'
import { givesVars } from '../compute/manager-vars.ts'
import { subnetResource } from '../network/subnets.ts'
import { Problem } from '../../lib/problem.ts'
import type { FormerDisk } from './lineage.ts'
import { parentFields, type ParentDocument } from '../parents.ts'
import { defineResource, keptBy, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'
// A store is deleted with its documents and collections: theirs are the kinds that a tenant's deletion comes to last.
import './documents.ts'
import './collections.ts'

export const ragStoreStates = states(
  {
    creating: {},
    ready: { rotate: 'updating', snapshot: 'snapshotting', restore: 'restoring', delete: 'deleting' },
    error: { enable: 'creating', restore: 'restoring', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['rotate', 'delete'] },
)

/** What a store keeps documents in: `images/rag`. */
export const storeEngines = ['sqlite', 'pgvector'] as const
export type StoreEngine = (typeof storeEngines)[number]
/** Less memory leaves too little for the database's own. */
export const leastMemoryMib: Record<StoreEngine, number> = { sqlite: 512, pgvector: 1024 }

/** The store of a tenant's documents: a container with a disk and a NIC in a subnet of the tenant. A tenant has one. */
export interface RagStoreDocument extends ResourceDocument<StateOf<typeof ragStoreStates>>, ParentDocument {
  subnet_id: string
  /** The name of its container, by which the subnet's members find it. */
  hostname: string
  engine: StoreEngine
  cpu_cores: number
  memory_mib: number
  size_gib: number
  /** Null until they have been accepted. */
  disk_id: string | null
  container_id: string | null
  /** The disks from whose snapshots it was restored, the first one first (lineage.ts). */
  former_disks: FormerDisk[]
  /** When snapshots of its disk are taken. Null: by hand alone. */
  snapshot_timing: { frequency: string; timezone: string } | null
  next_snapshot_at: Date | null
  /** How many snapshots stay when one is taken. */
  snapshots_kept: number
  /** PEM: its own authority. */
  certificate: string
  /** `StoreSecrets`. */
  secrets_sealed: string
  /** The operation that made the secrets. */
  secrets_of: string | null
}

export interface StoreSecrets {
  /** The bearer token of the tenant's instances. */
  token: string
  /** Of the certificate, PEM. */
  key: string
}

export const usuallyKept = 7

const schema = resourceSchema<RagStoreDocument>(
  {
    subnet_id: { type: String, required: true },
    hostname: { type: String, required: true },
    engine: { type: String, required: true, enum: storeEngines },
    cpu_cores: { type: Number, required: true },
    memory_mib: { type: Number, required: true },
    size_gib: { type: Number, required: true },
    disk_id: { type: String, default: null },
    container_id: { type: String, default: null },
    former_disks: { type: [Schema.Types.Mixed], default: [] },
    snapshot_timing: { type: Schema.Types.Mixed, default: null },
    next_snapshot_at: { type: Date, default: null },
    snapshots_kept: { type: Number, default: usuallyKept },
    certificate: { type: String, required: true },
    secrets_sealed: { type: String, required: true },
    secrets_of: { type: String, default: null },
    ...parentFields,
  },
  ragStoreStates,
  'rag_stores',
)
schema.index({ next_snapshot_at: 1 })
export const RagStore = mongoose.model<RagStoreDocument>('RagStore', schema)
export const ragStoreResource = defineResource('rag_store', RagStore, ragStoreStates, {
  title: 'retrieval store',
})

keptBy(subnetResource, async ({ _id, tenant_id }) => {
  if (await RagStore.exists({ tenant_id, subnet_id: _id }))
    throw new Problem(409, 'subnet_in_use', 'The subnet is in use', 'The retrieval store is in the subnet')
})

/** The port of a store in its subnet. */
export const storePort = 8_700
/** Where a store's disk is mounted. */
export const storeFolder = '/data'

const contextOf = (tenantId: string): string => `rag_stores.secrets:${tenantId}`
sealedField(RagStore, 'secrets_sealed', ({ tenant_id }) => contextOf(tenant_id))
export const openStoreSecrets = ({
  tenant_id,
  secrets_sealed,
}: Pick<RagStoreDocument, 'tenant_id' | 'secrets_sealed'>): Promise<StoreSecrets> =>
  unsealSecret(secrets_sealed, contextOf(tenant_id))

const certificateYears = 10

/** New secrets of a store, with the certificate that belongs to them. */
export async function newStoreSecrets(
  tenantId: string,
  hostname: string,
): Promise<Pick<RagStoreDocument, 'certificate' | 'secrets_sealed'>> {
  const { certificate, key } = await makeSelfSigned({ name: hostname, years: certificateYears })
  const secrets: StoreSecrets = { token: randomBytes(32).toString('base64url'), key }
  return { certificate, secrets_sealed: await sealSecret(secrets, contextOf(tenantId)) }
}

/** A name that no other member of a VPC has by chance. */
export const newHostname = (): string => `rag-${newId().slice(-8)}`

/** The URL for the subnet's members. */
export const endpointOf = ({ hostname }: Pick<RagStoreDocument, 'hostname'>): string =>
  `https://${hostname}:${storePort}`

// The config vars of a store's container.
givesVars(async ({ tenant_id, managed_by, nics }) => {
  const store = await RagStore.findOne({ _id: managed_by, tenant_id }).lean()
  if (!store) return {}
  const { token, key } = await openStoreSecrets(store)
  return {
    RAG_HOST: nics[0]?.ip_address ?? '127.0.0.1',
    RAG_PORT: String(storePort),
    RAG_FOLDER: storeFolder,
    RAG_TOKEN: token,
    RAG_TLS_CERT: store.certificate,
    RAG_TLS_KEY: key,
  }
})
