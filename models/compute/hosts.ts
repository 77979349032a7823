import mongoose, { Schema } from 'mongoose'
import type {
  Capacity,
  Enrolment,
  InstanceKindName,
  MachinesOfHost,
  PublicKey,
} from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { accepts, begin, type By } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Size } from '../identity/tenants.ts'
import type { Accepted } from '../operations.ts'
import { hashToken, newToken } from '../secrets.ts'
import {
  defineResource,
  documentOptions,
  idField,
  named,
  platformFields,
  type ResourceDocument,
} from '../resources.ts'
import { type StateOf, states } from '../states.ts'

/** `pending` until it has enrolled; `unreachable` while it does not report. */
export const hostStates = states({
  pending: {},
  active: { evacuate: 'evacuating' },
  unreachable: { evacuate: 'evacuating' },
})

/**
 * A machine that runs tenants' instances. It belongs to the platform: its `tenant_id` says only in which operator's
 * tenant the operations on it are kept.
 */
export interface HostDocument extends ResourceDocument<StateOf<typeof hostStates>> {
  /** Takes no new instances. */
  cordoned: boolean
  /** Keyed hash of the one-time token, and when it ends. */
  token_hash: string | null
  token_expires_at: Date | null
  public_key: PublicKey | null
  data_plane_url: string | null
  address: string | null
  capacity: Capacity | null
  engine: { name: string; version: string } | null
  /** What runs its microVMs and VMs. */
  machines: MachinesOfHost | null
  /** What can run on it. */
  kinds: InstanceKindName[]
  /** By which other hosts reach its part of a VPC; null: they do not. */
  underlay_address: string | null
  /** Sums over the reservations on this host. */
  reserved: Size
  last_report_at: Date | null
  /** Since when its silence counts (reachability.ts), whatever is being done with it; null while it reports. */
  unreachable_since: Date | null
}

const Mixed = Schema.Types.Mixed
const schema = new Schema<HostDocument>(
  {
    _id: idField,
    ...platformFields(hostStates),
    name: { type: String, required: true },
    cordoned: { type: Boolean, default: false },
    token_hash: { type: String, default: null },
    token_expires_at: { type: Date, default: null },
    public_key: { type: Mixed, default: null },
    data_plane_url: { type: String, default: null },
    address: { type: String, default: null },
    capacity: { type: Mixed, default: null },
    engine: { type: Mixed, default: null },
    machines: { type: Mixed, default: null },
    kinds: { type: [String], default: ['container'] },
    underlay_address: { type: String, default: null },
    reserved: {
      cpu_milli: { type: Number, default: 0 },
      memory_mib: { type: Number, default: 0 },
      disk_gib: { type: Number, default: 0 },
    },
    last_report_at: { type: Date, default: null },
    unreachable_since: { type: Date, default: null },
  },
  { ...documentOptions, collection: 'hosts' },
)
schema.index({ name: 1 }, { unique: true })
schema.index({ token_hash: 1 }, { sparse: true })
export const Host = mongoose.model<HostDocument>('Host', schema)
export const hostResource = defineResource('host', Host, hostStates, { of_platform: true })

const tokenLivesMs = 24 * 3_600_000

/** A one-time token with which a machine becomes this host. Only its keyed hash is kept. */
export function newEnrolToken(): { token: string; token_hash: string; token_expires_at: Date } {
  const token = newToken('klh')
  return { token, token_hash: hashToken(token), token_expires_at: new Date(Date.now() + tokenLivesMs) }
}

/** Announces a host, which enrols itself by the token. Throws NameTaken. */
export async function createHost(
  name: string,
): Promise<{ host: HostDocument; token: string; expires_at: Date }> {
  const { token, ...kept } = newEnrolToken()
  const host = await named('host', name, () => new Host({ name, status: 'pending', ...kept }).save())
  return { host: host.toObject(), token, expires_at: kept.token_expires_at }
}

/** Throws NotFound. */
export async function hostOf(id: string): Promise<HostDocument> {
  const host = await Host.findById(id).lean()
  if (!host) throw new NotFound('host')
  return host
}

/**
 * Makes the machine with this key the host that the token stands for. With the same token and key again, the
 * answer is the same; with another key, null.
 */
export async function enrolHost(enrolment: Enrolment): Promise<HostDocument | null> {
  const { token, public_key, capacity, data_plane_url, address } = enrolment
  return Host.findOneAndUpdate(
    {
      token_hash: hashToken(token),
      token_expires_at: { $gt: new Date() },
      $or: [{ public_key: null }, { 'public_key.x': public_key.x }],
    },
    { $set: { status: 'active', public_key, capacity, data_plane_url, address } },
    { returnDocument: 'after' },
  ).lean()
}

/** Closes a host to new instances, or opens it. Throws NotFound. */
export async function setCordon(id: string, cordoned: boolean): Promise<HostDocument> {
  const host = await Host.findByIdAndUpdate(id, { $set: { cordoned } }, { returnDocument: 'after' }).lean()
  if (!host) throw new NotFound('host')
  return host
}

/** Accepts an evacuation: the host takes nothing new, and the operation is kept with the operator. Throws as `begin`. */
export const acceptEvacuation = (by: By, id: string): Promise<Accepted<HostDocument>> =>
  transaction(async () => {
    const set = { cordoned: true, tenant_id: by.tenant_id }
    const { matchedCount } = await Host.updateOne({ _id: id }, { $set: set })
    if (!matchedCount) throw new NotFound('host')
    return begin(by, hostResource, id, 'evacuate')
  }, id)

accepts(hostResource, { verbs: { evacuate: acceptEvacuation } })
