import { Problem } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { type CertificateDocument, certificateResource, needCertificateQuota } from './certificates.ts'

// The acceptance rules for certificates that the platform obtains by ACME.

type AcceptedCertificate = Promise<Accepted<CertificateDocument>>

/** Throws QuotaExceeded and NameTaken. */
export const acceptCertificate = (
  by: By,
  fields: Pick<CertificateDocument, 'name' | 'tags' | 'domains'>,
): AcceptedCertificate =>
  transaction(async () => {
    await needCertificateQuota(by.tenant_id)
    const unknown = { certificate_pem: null, private_key_sealed: null, issuer: null, fingerprint: null }
    const dates = { not_before: null, not_after: null, renews_at: null, warned_days: null }
    return create(by, certificateResource, {
      fields: { ...fields, ...unknown, ...dates, source: 'acme', failures: 0, turns: 0 },
    })
  }, by.tenant_id)

/** Throws as `begin`, and a 409 for an uploaded certificate. */
export const acceptRenewal = (by: By, id: string): AcceptedCertificate =>
  begin(by, certificateResource, id, 'renew', {
    reserve({ source }) {
      if (source === 'acme') return Promise.resolve()
      throw new Problem(409, 'certificate_uploaded', 'An uploaded certificate is renewed by an upload')
    },
  })

accepts(certificateResource, { create: acceptCertificate, verbs: { renew: acceptRenewal } })
