import { type Model, Schema } from 'mongoose'
import type { InstanceKindName, PlacedKindName } from '../../lib/host-protocol.ts'
import { NotFound, OperationInProgress } from '../../lib/problem.ts'
import type { Size } from '../identity/tenants.ts'
import { type AskedNic, type NicView, takeNics } from '../network/nics.ts'
import { needUnmanaged } from '../managed.ts'
import type { Resource, ResourceDocument } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import type { DiskMount } from '../storage/disks.ts'
import type { Constraints } from './placement.ts'

// What containers, microVMs and VMs have in common: everything but the engine. `Instance` here means any kind
// (instance-kinds.ts).

export interface InstanceDocument<State extends string = string> extends ResourceDocument<State> {
  image: string
  /** Pinned once known: a restart runs the same image. */
  image_digest: string | null
  cpu_cores: number
  memory_mib: number
  restart_policy: 'always' | 'on_failure' | 'never'
  log_cap_mib: number
  /** Sealed by `sealConfigVars` of its kind. */
  config_vars_sealed: string
  desired_state: 'running' | 'stopped' | 'suspended'
  host_id: string | null
  /** The host that an operator has chosen. */
  wanted_host_id: string | null
  /** For display. The authoritative attachment is in the disk's record. */
  disks: DiskMount[]
  /** A copy of the NIC records (models/network/nics.ts), for lists. */
  nics: NicView[]
  /** Names of the fields whose changes take effect at the next start. */
  pending_changes: string[]
  exit_code: number | null
  restart_count: number
  started_at: Date | null
  /** The last repairs in a row (repairs.ts). */
  repairs?: { count: number; last_at: Date } | null
  /** The size it runs with while a change of size waits for the next start; null otherwise. */
  runs_with: { cpu_cores: number; memory_mib: number } | null
}

/** The most disks that one instance may have. */
export const maxDisks = 16

/** The schema fields of an instance. */
export const instanceFields = {
  image: { type: String, required: true },
  image_digest: { type: String, default: null },
  cpu_cores: { type: Number, required: true },
  memory_mib: { type: Number, required: true },
  restart_policy: { type: String, required: true },
  log_cap_mib: { type: Number, required: true },
  config_vars_sealed: { type: String, required: true },
  desired_state: { type: String, required: true, enum: ['running', 'stopped', 'suspended'] },
  host_id: { type: String, default: null },
  wanted_host_id: { type: String, default: null },
  disks: { type: [Schema.Types.Mixed], default: [] },
  nics: { type: [Schema.Types.Mixed], default: [] },
  pending_changes: { type: [String], default: [] },
  exit_code: { type: Number, default: null },
  restart_count: { type: Number, default: 0 },
  started_at: { type: Date, default: null },
  repairs: { type: Schema.Types.Mixed, default: null },
  runs_with: { type: Schema.Types.Mixed, default: null },
}

/** The verbs to attach and detach, for the state tables of the kinds. */
export const attaching = {
  attach_disk: 'updating',
  detach_disk: 'updating',
  attach_nic: 'updating',
  detach_nic: 'updating',
} as const

/** The verbs to attach and detach databases, for the kinds that have config vars of their own. */
export const attachingDatabases = {
  attach_database: 'updating',
  detach_database: 'updating',
} as const

/** The verbs of every kind. */
export type InstanceVerb =
  | keyof typeof attaching
  | 'start'
  | 'stop'
  | 'update'
  | 'repair'
  | 'reschedule'
  | 'delete'

/** What workflows and hosts need of every instance. */
export interface PlacedSpec {
  id: string
  image: string
  image_digest: string | null
  cpu_cores: number
  memory_mib: number
  restart_policy: InstanceDocument['restart_policy']
  disks: DiskMount[]
  /** Its resolver, if it has NICs. */
  network?: { dns_server: string; search_domain: string } | null
}

/** One kind of instance, as common code uses it. */
export interface InstanceKind extends Declared<InstanceDocument> {
  sealConfigVars: (tenantId: string, vars: Record<string, string>) => Promise<string>
  openConfigVars: (instance: InstanceDocument) => Promise<Record<string, string>>
}

/** A kind to which databases can be attached. */
export type AttachableKind = Omit<InstanceKind, 'resource'> & {
  resource: Resource<InstanceDocument, InstanceVerb | keyof typeof attachingDatabases>
}

/** What each kind declares. */
interface Declared<D extends InstanceDocument, Verb extends string = InstanceVerb> {
  kind: InstanceKindName
  /** The name in sentences: `container`. */
  title: string
  model: Model<D>
  resource: Resource<D, Verb>
  /** Fields whose changes take effect while it runs; other changes wait for the next start. */
  live: ReadonlySet<string>
  /** Whether a move takes data outside its disks along: then it cannot leave an unreachable host. */
  moves_whole: boolean
  /** The size that it reserves of its tenant's quota and of its host. */
  sizeOf: (instance: D) => Size
  /** What a host must be equipped to run, if not every instance of this kind needs the same. */
  placedAs?: (instance: D) => PlacedKindName
  /** Runs in the transaction that adds NICs. Returns changes of the record, or throws to refuse. */
  onNics?: (instance: D) => Promise<Partial<D>>
  /** Runs in the transaction that accepts the removal of a NIC. Throws to refuse. */
  mayLoseNic?: (instance: D) => void
  /** What its host needs to run it, except the config vars, which the host fetches. */
  specOf: (instance: D) => PlacedSpec
}

/** Defines a kind. The table of kinds must list it (instance-kinds.ts). */
export function defineInstance<D extends InstanceDocument, Verb extends string>(
  declared: Declared<D, Verb>,
): Omit<InstanceKind, 'resource'> & { resource: Resource<D, Verb> } {
  const kind = declared as unknown as Declared<InstanceDocument> & typeof declared
  const contextOf = (tenantId: string): string =>
    `${kind.model.collection.collectionName}.config_vars:${tenantId}`
  sealedField(kind.model, 'config_vars_sealed', ({ tenant_id }) => contextOf(tenant_id))
  return {
    ...kind,
    sealConfigVars: (tenantId, vars) => sealSecret(vars, contextOf(tenantId)),
    openConfigVars: ({ config_vars_sealed, tenant_id }) =>
      unsealSecret(config_vars_sealed, contextOf(tenant_id)),
  }
}

/** Adds the NICs of a new instance, in the transaction that creates it. Throws as `takeNics`. */
export async function takeInstanceNics(
  { kind, model, onNics }: InstanceKind,
  instance: InstanceDocument,
  asked: Omit<AskedNic, 'id'>[],
): Promise<Partial<InstanceDocument>> {
  const { _id: id, name, tenant_id, managed_by } = instance
  const nics = await takeNics(
    { id, kind, name, tenant_id, managed_by },
    asked.map((nic) => ({ id: null, ...nic })),
  )
  const more = { nics, ...(await onNics?.(instance)) }
  await model.updateOne({ _id: id, tenant_id }, { $set: more }, { timestamps: false })
  return more
}

/** The tenant's other instances of this kind with the same tags, to keep apart from. None without tags. */
async function likeOf(
  { model }: InstanceKind,
  { _id, tenant_id, tags }: InstanceDocument,
): Promise<string[]> {
  if (Object.keys(tags).length === 0) return []
  const like = await model.find({ tenant_id, tags, _id: { $ne: _id } }, { _id: 1 }).lean()
  return like.map((other) => other._id)
}

/**
 * Where an instance may be placed. A kind that moves whole needs room to run there, and its memory must be readable.
 */
export async function constraintsOf(
  kind: InstanceKind,
  instance: InstanceDocument,
  hostId: string | null,
): Promise<Constraints> {
  return {
    kind: kind.placedAs?.(instance) ?? kind.kind,
    hostId,
    apartFrom: await likeOf(kind, instance),
    ...(kind.moves_whole
      ? { toRun: kind.sizeOf(instance), withMemory: instance.desired_state !== 'stopped' }
      : {}),
  }
}

const started = ['running', 'unreachable', 'suspended']

/**
 * Replaces the config vars. A running process keeps its environment: returns true if the change waits for the next
 * start. Throws OperationInProgress, since an open operation may have read the former config vars, and ManagedResource.
 */
export async function setConfigVars(
  kind: InstanceKind,
  instance: InstanceDocument,
  vars: Record<string, string>,
): Promise<boolean> {
  const { _id, tenant_id, status } = instance
  const { model, title, sealConfigVars } = kind
  needUnmanaged(title, instance)
  const waits = started.includes(status)
  const { matchedCount } = await model.updateOne(
    { _id, tenant_id, status, operation_id: null },
    {
      $set: { config_vars_sealed: await sealConfigVars(tenant_id, vars) },
      ...(waits ? { $addToSet: { pending_changes: 'config_vars' } } : {}),
    },
  )
  if (matchedCount) return waits
  const now = await model.findOne({ _id, tenant_id }).lean()
  if (now?.operation_id) throw new OperationInProgress(now.operation_id)
  if (now) return setConfigVars(kind, now, vars) // the status changed between the two queries
  throw new NotFound(title)
}
