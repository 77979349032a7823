import mongoose from 'mongoose'
import { NotFound, OperationInProgress, Problem, StateConflict } from '../../lib/problem.ts'
import { noteActivity } from '../activity.ts'
import { transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { lockParent, type ParentDocument, parentFields } from '../parents.ts'
import { defineResource, mine, named, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'
import { type Chain, keyToPem, readChain } from './chains.ts'
import { loadBalancersChanged } from './load-balancer-news.ts'

export const certificateStates = states(
  {
    creating: {},
    available: { renew: 'renewing', delete: 'deleting' },
    /** Not issued, or not renewed: then its listeners keep the certificate that they have. */
    error: { renew: 'renewing', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete'] },
)

const hourMs = 3_600_000
const dayMs = 24 * hourMs

/** A certificate chain with its private key, for listeners of load balancers. */
export interface CertificateDocument
  extends ResourceDocument<StateOf<typeof certificateStates>>,
    ParentDocument {
  /** By whom it is replaced before it expires: the tenant, or the platform by ACME. */
  source: 'upload' | 'acme'
  /** Leaf first. Null until it is issued, as is everything about it except the domains. */
  certificate_pem: string | null
  private_key_sealed: string | null
  domains: string[]
  issuer: string | null
  not_before: Date | null
  not_after: Date | null
  /** SHA-256 of the first certificate. */
  fingerprint: string | null
  /** When the platform renews it next. Null for an upload, and until it is issued. */
  renews_at: Date | null
  /** Renewals that failed since the last success. */
  failures: number
  /** How many days before its expiry the tenant was last warned. */
  warned_days: number | null
}

const schema = resourceSchema<CertificateDocument>(
  {
    source: { type: String, required: true, enum: ['upload', 'acme'] },
    certificate_pem: { type: String, default: null },
    private_key_sealed: { type: String, default: null },
    domains: { type: [String], required: true },
    issuer: { type: String, default: null },
    not_before: { type: Date, default: null },
    not_after: { type: Date, default: null },
    fingerprint: { type: String, default: null },
    renews_at: { type: Date, default: null },
    failures: { type: Number, default: 0 },
    warned_days: { type: Number, default: null },
    ...parentFields,
  },
  certificateStates,
  'certificates',
)
// The platform looks for due renewals and for certificates that expire.
schema.index({ renews_at: 1 }, { partialFilterExpression: { renews_at: { $type: 'date' } } })
schema.index({ not_after: 1 })
export const Certificate = mongoose.model<CertificateDocument>('Certificate', schema)
export const certificateResource = defineResource('certificate', Certificate, certificateStates, {
  feed: ['created'],
  comesToRest: noteFailure, // tells the feed, too
})

const contextOf = (tenantId: string): string => `certificates.private_key:${tenantId}`
sealedField(Certificate, 'private_key_sealed', ({ tenant_id }) => contextOf(tenant_id))

/** A chain and its key. */
interface Upload {
  certificate_pem: string
  private_key_pem: string
}

/** Throws InvalidInput, QuotaExceeded, NameTaken. */
export async function createCertificate(
  tenant_id: string,
  { name, tags, ...upload }: Pick<CertificateDocument, 'name' | 'tags'> & Upload,
): Promise<CertificateDocument> {
  const fields = await fieldsOf(tenant_id, upload)
  return named('certificate', name, () =>
    transaction(async () => {
      await needCertificateQuota(tenant_id)
      const status = 'available'
      const made = await new Certificate({
        ...fields,
        name,
        tags,
        tenant_id,
        status,
        source: 'upload',
      }).save()
      return made.toObject()
    }, tenant_id),
  )
}

/** Throws QuotaExceeded. Runs in the transaction that makes the certificate. */
export async function needCertificateQuota(tenant_id: string): Promise<void> {
  await lockParent(tenantResource, tenant_id, tenant_id)
  await needQuota(tenant_id, 'max_certificates', await Certificate.countDocuments({ tenant_id }))
}

/** Throws InvalidInput, NotFound, OperationInProgress, NameTaken, and a 409 for a chain instead of one by ACME. */
export async function changeCertificate(
  tenant_id: string,
  _id: string,
  { upload, ...changes }: { name?: string; tags?: Record<string, string>; upload?: Upload },
): Promise<CertificateDocument> {
  const { source } = await mine(certificateResource, { tenant_id }, _id) // a stranger learns nothing from the checks below
  if (upload && source !== 'upload')
    throw new Problem(409, 'certificate_not_uploaded', 'The platform renews the certificate by ACME')
  const set = { ...changes, ...(upload ? await fieldsOf(tenant_id, upload) : {}) }
  const changed = await named('certificate', changes.name ?? '', () =>
    Certificate.findOneAndUpdate(
      { _id, tenant_id, operation_id: null },
      { $set: set },
      { returnDocument: 'after' },
    ).lean(),
  )
  if (changed) {
    if (upload) loadBalancersChanged({ certificate_id: _id })
    return changed
  }
  const { operation_id } = await mine(certificateResource, { tenant_id }, _id)
  throw operation_id ? new OperationInProgress(operation_id) : new NotFound('certificate')
}

/** The fields that a chain and its key set. Throws InvalidInput. */
export async function fieldsOf(tenantId: string, { certificate_pem, private_key_pem }: Upload) {
  const { pem, domains, issuer, not_before, not_after, fingerprint }: Chain = readChain(
    certificate_pem,
    private_key_pem,
  )
  const private_key_sealed = await sealSecret(keyToPem(private_key_pem), contextOf(tenantId))
  const dates = { not_before, not_after, warned_days: null }
  return { certificate_pem: pem, private_key_sealed, domains, issuer, fingerprint, ...dates }
}

/** The key and the chain in one PEM, as a TLS server reads them. Secret. Null until the certificate is issued. */
export async function openCertificate({
  tenant_id,
  certificate_pem,
  private_key_sealed,
}: CertificateDocument): Promise<string | null> {
  if (certificate_pem === null || private_key_sealed === null) return null
  const key = await unsealSecret<string>(private_key_sealed, contextOf(tenant_id))
  return `${key.trimEnd()}\n${certificate_pem}`
}

/**
 * Locks an issued certificate for a listener, also one whose renewal failed. Throws NotFound, and StateConflict before
 * it is issued and while it is deleted.
 */
export async function lockCertificate(tenant_id: string, _id: string): Promise<void> {
  const { matchedCount } = await Certificate.updateOne(
    { _id, tenant_id, status: { $ne: 'deleting' }, certificate_pem: { $ne: null } },
    { $inc: { turns: 1 } },
    { timestamps: false },
  )
  if (matchedCount) return
  const { status } = await mine(certificateResource, { tenant_id }, _id)
  throw new StateConflict('use the certificate', status)
}

/** After two thirds of its lifetime, as ACME's authorities ask for. */
export const renewalOf = (not_before: Date, not_after: Date): Date =>
  new Date(not_before.getTime() + ((not_after.getTime() - not_before.getTime()) * 2) / 3)

/**
 * When to try again after this many failures: from half an hour to half a day, and each half hour in the last three
 * days. Shorter than the least time between two looks, so that each of these is an attempt.
 */
export function retryAt(failures: number, not_after: Date, now = new Date()): Date {
  const isUrgent = not_after.getTime() - now.getTime() < 3 * dayMs
  const waitMs = isUrgent ? hourMs / 2 : Math.min((hourMs / 2) * 2 ** Math.min(failures - 1, 10), dayMs / 2)
  return new Date(now.getTime() + waitMs)
}

/** After a failed creation or renewal: says so in the activity feed, and sets the next attempt. */
async function noteFailure({ _id, tenant_id }: { _id: string; tenant_id: string }): Promise<void> {
  const failed = await Certificate.findOneAndUpdate(
    { _id, tenant_id, status: 'error' },
    { $inc: { failures: 1 } },
    { returnDocument: 'after' },
  ).lean()
  if (!failed) return
  const { failures, not_after, status_reason } = failed
  if (not_after)
    await Certificate.updateOne({ _id, tenant_id }, { $set: { renews_at: retryAt(failures, not_after) } })
  await noteActivity({
    tenant_id,
    resource_id: _id,
    kind: not_after ? 'renewal_failed' : 'issue_failed',
    message: `The certificate was not ${not_after ? 'renewed' : 'issued'}: ${status_reason ?? 'unknown'}`,
    data: { domains: failed.domains },
  })
}
