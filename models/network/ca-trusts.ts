import mongoose from 'mongoose'
import { InvalidInput, NotFound, OperationInProgress } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { lockParent, type ParentDocument, parentFields } from '../parents.ts'
import { defineResource, mine, named, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { isAuthority, readCertificates, toPem } from './chains.ts'
import { loadBalancersChanged } from './load-balancer-news.ts'

export const caTrustStates = states({ available: { delete: 'deleting' } }, { final: ['delete'] })

/** Certificate authorities that a route accepts as issuers of its targets' certificates. */
export interface CaTrustDocument extends ResourceDocument<StateOf<typeof caTrustStates>>, ParentDocument {
  certificates_pem: string
  subjects: string[]
  /** When the first of them expires. */
  not_after: Date
}

const schema = resourceSchema<CaTrustDocument>(
  {
    certificates_pem: { type: String, required: true },
    subjects: { type: [String], required: true },
    not_after: { type: Date, required: true },
    ...parentFields,
  },
  caTrustStates,
  'ca_trusts',
)
export const CaTrust = mongoose.model<CaTrustDocument>('CaTrust', schema)
export const caTrustResource = defineResource('ca_trust', CaTrust, caTrustStates, { title: 'CA trust' })

/** Throws InvalidInput, QuotaExceeded, NameTaken. */
export function createCaTrust(
  tenant_id: string,
  { name, tags, certificates_pem }: Pick<CaTrustDocument, 'name' | 'tags' | 'certificates_pem'>,
): Promise<CaTrustDocument> {
  const fields = fieldsOf(certificates_pem)
  return named('CA trust', name, () =>
    transaction(async () => {
      await lockParent(tenantResource, tenant_id, tenant_id)
      await needQuota(tenant_id, 'max_certificates', await CaTrust.countDocuments({ tenant_id }))
      const made = await new CaTrust({ ...fields, name, tags, tenant_id, status: 'available' }).save()
      return made.toObject()
    }, tenant_id),
  )
}

/** Throws InvalidInput, NotFound, OperationInProgress, NameTaken. */
export async function changeCaTrust(
  tenant_id: string,
  _id: string,
  {
    certificates_pem,
    ...changes
  }: { name?: string; tags?: Record<string, string>; certificates_pem?: string },
): Promise<CaTrustDocument> {
  await mine(caTrustResource, { tenant_id }, _id)
  const set = { ...changes, ...(certificates_pem === undefined ? {} : fieldsOf(certificates_pem)) }
  const changed = await named('CA trust', changes.name ?? '', () =>
    CaTrust.findOneAndUpdate(
      { _id, tenant_id, operation_id: null },
      { $set: set },
      { returnDocument: 'after' },
    ).lean(),
  )
  if (changed) {
    if (certificates_pem !== undefined) loadBalancersChanged({ ca_trust_id: _id })
    return changed
  }
  const { operation_id } = await mine(caTrustResource, { tenant_id }, _id)
  throw operation_id ? new OperationInProgress(operation_id) : new NotFound('CA trust')
}

function fieldsOf(pem: string) {
  const pointer = '/certificates_pem'
  const certificates = readCertificates(pointer, pem)
  const now = new Date()
  const errors = certificates.flatMap((certificate, i) => {
    if (!isAuthority(certificate))
      return [{ pointer, message: `certificate ${i + 1} is not a CA certificate` }]
    if (certificate.validToDate <= now)
      return [{ pointer, message: `certificate ${i + 1} expired on ${certificate.validTo}` }]
    return []
  })
  if (errors.length) throw new InvalidInput(422, errors)
  const ends = certificates.map(({ validToDate }) => validToDate.getTime())
  return {
    certificates_pem: toPem(certificates),
    subjects: certificates.map(({ subject }) => subject.replaceAll('\n', ', ')),
    not_after: new Date(Math.min(...ends)),
  }
}
