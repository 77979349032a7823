import mongoose, { Schema } from 'mongoose'
import type { Capacity, Enrolment, PublicKey } from '../../lib/host-protocol.ts'
import { hashToken, newToken } from '../secrets.ts'
import { documentOptions, idField } from '../resources.ts'

/** A machine that runs tenants' instances. It belongs to the platform, not to a tenant. */
export interface HostDocument {
  _id: string
  name: string
  /** `pending` until it has enrolled. */
  status: 'pending' | 'active'
  cordoned: boolean
  /** Keyed hash of the one-time token, and when it ends. */
  token_hash: string | null
  token_expires_at: Date | null
  public_key: PublicKey | null
  data_plane_url: string | null
  address: string | null
  capacity: Capacity | null
  engine: { name: string; version: string } | null
  /** Sums over the reservations on this host, in whole thousandths of a core and MiB. */
  reserved: { cpu_milli: number; memory_mib: number }
  last_report_at: Date | null
  created_at: Date
  updated_at: Date
}

const Mixed = Schema.Types.Mixed
const schema = new Schema<HostDocument>(
  {
    _id: idField,
    name: { type: String, required: true },
    status: { type: String, required: true, enum: ['pending', 'active'] },
    cordoned: { type: Boolean, default: false },
    token_hash: { type: String, default: null },
    token_expires_at: { type: Date, default: null },
    public_key: { type: Mixed, default: null },
    data_plane_url: { type: String, default: null },
    address: { type: String, default: null },
    capacity: { type: Mixed, default: null },
    engine: { type: Mixed, default: null },
    reserved: { cpu_milli: { type: Number, default: 0 }, memory_mib: { type: Number, default: 0 } },
    last_report_at: { type: Date, default: null },
  },
  { ...documentOptions, collection: 'hosts' },
)
schema.index({ name: 1 }, { unique: true })
schema.index({ token_hash: 1 }, { sparse: true })
export const Host = mongoose.model<HostDocument>('Host', schema)

const tokenLivesMs = 24 * 3_600_000

/** A one-time token with which a machine becomes this host. Only its keyed hash is kept. */
export function newEnrolToken(): { token: string; token_hash: string; token_expires_at: Date } {
  const token = newToken('klh')
  return { token, token_hash: hashToken(token), token_expires_at: new Date(Date.now() + tokenLivesMs) }
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
