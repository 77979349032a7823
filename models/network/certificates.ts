import mongoose from 'mongoose'
import { NotFound, OperationInProgress } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { lockParent, type ParentDocument, parentFields } from '../parents.ts'
import { defineResource, mine, named, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'
import { type Chain, keyToPem, readChain } from './chains.ts'
import { loadBalancersChanged } from './load-balancer-news.ts'

export const certificateStates = states({ available: { delete: 'deleting' } }, { final: ['delete'] })

/** A certificate chain with its private key, for listeners of load balancers. */
export interface CertificateDocument
  extends ResourceDocument<StateOf<typeof certificateStates>>,
    ParentDocument {
  /** Leaf first. */
  certificate_pem: string
  private_key_sealed: string
  domains: string[]
  issuer: string
  not_before: Date
  not_after: Date
  /** SHA-256 of the first certificate. */
  fingerprint: string
}

const schema = resourceSchema<CertificateDocument>(
  {
    certificate_pem: { type: String, required: true },
    private_key_sealed: { type: String, required: true },
    domains: { type: [String], required: true },
    issuer: { type: String, required: true },
    not_before: { type: Date, required: true },
    not_after: { type: Date, required: true },
    fingerprint: { type: String, required: true },
    ...parentFields,
  },
  certificateStates,
  'certificates',
)
export const Certificate = mongoose.model<CertificateDocument>('Certificate', schema)
export const certificateResource = defineResource('certificate', Certificate, certificateStates)

const contextOf = (tenantId: string): string => `certificates.private_key:${tenantId}`
sealedField(Certificate, 'private_key_sealed', ({ tenant_id }) => contextOf(tenant_id))

/** A chain and its key, as uploaded. */
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
      await lockParent(tenantResource, tenant_id, tenant_id)
      await needQuota(tenant_id, 'max_certificates', await Certificate.countDocuments({ tenant_id }))
      const made = await new Certificate({ ...fields, name, tags, tenant_id, status: 'available' }).save()
      return made.toObject()
    }, tenant_id),
  )
}

/** Throws InvalidInput, NotFound, OperationInProgress, NameTaken. */
export async function changeCertificate(
  tenant_id: string,
  _id: string,
  { upload, ...changes }: { name?: string; tags?: Record<string, string>; upload?: Upload },
): Promise<CertificateDocument> {
  await mine(certificateResource, { tenant_id }, _id) // a stranger learns nothing from the checks below
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

async function fieldsOf(tenantId: string, { certificate_pem, private_key_pem }: Upload) {
  const { pem, domains, issuer, not_before, not_after, fingerprint }: Chain = readChain(
    certificate_pem,
    private_key_pem,
  )
  const private_key_sealed = await sealSecret(keyToPem(private_key_pem), contextOf(tenantId))
  return { certificate_pem: pem, private_key_sealed, domains, issuer, not_before, not_after, fingerprint }
}

/** The key and the chain in one PEM, as a TLS server reads them. Secret. */
export async function openCertificate({
  tenant_id,
  certificate_pem,
  private_key_sealed,
}: CertificateDocument): Promise<string> {
  const key = await unsealSecret<string>(private_key_sealed, contextOf(tenant_id))
  return `${key.trimEnd()}\n${certificate_pem}`
}
