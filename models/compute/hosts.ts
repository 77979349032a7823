import mongoose, { Schema } from 'mongoose'
import type {
  Capacity,
  Enrolment,
  MachinesOfHost,
  PlacedKindName,
  PublicKey,
} from '../../lib/host-protocol.ts'
import type { PublishablePorts } from '../../lib/port-ranges.ts'
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

/** A host is `pending` until it enrols, and `unreachable` while it gives no sign of life. */
export const hostStates = states({
  pending: {},
  active: { evacuate: 'evacuating' },
  unreachable: { evacuate: 'evacuating' },
})

/**
 * A machine that runs tenants' instances. It belongs to the platform: its `tenant_id` is only the operator's tenant
 * that keeps the operations on it.
 */
export interface HostDocument extends ResourceDocument<StateOf<typeof hostStates>> {
  /** A cordoned host takes no new instances. */
  cordoned: boolean
  /** The keyed hash of the one-time enrolment token. */
  token_hash: string | null
  token_expires_at: Date | null
  public_key: PublicKey | null
  data_plane_url: string | null
  /** The only certificate by which the platform knows the data plane, PEM. */
  data_plane_certificate: string | null
  address: string | null
  capacity: Capacity | null
  engine: { name: string; version: string } | null
  /** The engine of its microVMs and VMs. */
  machines: MachinesOfHost | null
  /** The kinds of instances that the host can run, and whether it can run load balancers. */
  kinds: PlacedKindName[]
  /** The address at which other hosts reach its part of a VPC; null if they cannot. */
  underlay_address: string | null
  /** The public key of its tunnel to other hosts, which no other host has; null without a tunnel. */
  tunnel_key: string | null
  /** The ports that it publishes; null until it has reported. */
  published_ports: PublishablePorts | null
  /** Sums over the reservations on this host. */
  reserved: Size
  last_report_at: Date | null
  /** Its last sign of life, which alone decides whether it is reachable (reachability.ts). */
  last_heard_at: Date | null
  /** When it was marked unreachable, also during an operation on it; null while it gives signs of life. */
  unreachable_since: Date | null
  /** Since when the engine of its containers does not answer: it gets nothing new. Null: the engine answers. */
  engine_silent_since: Date | null
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
    data_plane_certificate: { type: String, default: null },
    address: { type: String, default: null },
    capacity: { type: Mixed, default: null },
    engine: { type: Mixed, default: null },
    machines: { type: Mixed, default: null },
    kinds: { type: [String], default: ['container'] },
    underlay_address: { type: String, default: null },
    tunnel_key: { type: String, default: null },
    published_ports: { type: Mixed, default: null },
    reserved: {
      cpu_milli: { type: Number, default: 0 },
      memory_mib: { type: Number, default: 0 },
      disk_gib: { type: Number, default: 0 },
    },
    last_report_at: { type: Date, default: null },
    last_heard_at: { type: Date, default: null },
    engine_silent_since: { type: Date, default: null },
    unreachable_since: { type: Date, default: null },
  },
  { ...documentOptions, collection: 'hosts' },
)
schema.index({ name: 1 }, { unique: true })
schema.index({ token_hash: 1 }, { sparse: true })
schema.index(
  { tunnel_key: 1 },
  { unique: true, partialFilterExpression: { tunnel_key: { $type: 'string' } } },
)
export const Host = mongoose.model<HostDocument>('Host', schema)
export const hostResource = defineResource('host', Host, hostStates, { of_platform: true })

const tokenLivesMs = 24 * 3_600_000

/** Makes a one-time token with which a machine enrols as the host. Only its keyed hash is stored. */
export function newEnrolToken(): { token: string; token_hash: string; token_expires_at: Date } {
  const token = newToken('klh')
  return { token, token_hash: hashToken(token), token_expires_at: new Date(Date.now() + tokenLivesMs) }
}

/** Creates a pending host, and the token with which the machine enrols. Throws NameTaken. */
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
 * Enrols the machine with this key as the host of the token. Idempotent for the same token and key. Returns null for an
 * unknown or expired token, and for a token that was used with another key.
 */
export async function enrolHost(enrolment: Enrolment): Promise<HostDocument | null> {
  const { token, public_key, capacity, data_plane_url, data_plane_certificate, address } = enrolment
  const facts = { public_key, capacity, data_plane_url, data_plane_certificate, address }
  return Host.findOneAndUpdate(
    {
      token_hash: hashToken(token),
      token_expires_at: { $gt: new Date() },
      $or: [{ public_key: null }, { 'public_key.x': public_key.x }],
    },
    { $set: { status: 'active', ...facts } },
    { returnDocument: 'after' },
  ).lean()
}

/** Cordons or uncordons a host. Throws NotFound. */
export async function setCordon(id: string, cordoned: boolean): Promise<HostDocument> {
  const host = await Host.findByIdAndUpdate(id, { $set: { cordoned } }, { returnDocument: 'after' }).lean()
  if (!host) throw new NotFound('host')
  return host
}

/** Accepts an evacuation, and cordons the host. The operator's tenant keeps the operation. Throws as `begin`. */
export const acceptEvacuation = (by: By, id: string): Promise<Accepted<HostDocument>> =>
  transaction(async () => {
    const set = { cordoned: true, tenant_id: by.tenant_id }
    const { matchedCount } = await Host.updateOne({ _id: id }, { $set: set })
    if (!matchedCount) throw new NotFound('host')
    return begin(by, hostResource, id, 'evacuate')
  }, id)

accepts(hostResource, { verbs: { evacuate: acceptEvacuation } })
