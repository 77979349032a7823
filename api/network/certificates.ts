import { z } from 'zod'
import { acceptCertificate, acceptRenewal } from '../../models/network/certificate-acceptance.ts'
import {
  type CertificateDocument,
  certificateResource,
  certificateStates,
  changeCertificate,
  createCertificate,
} from '../../models/network/certificates.ts'
import { longestPem } from '../../models/network/chains.ts'
import { mine } from '../../models/resources.ts'
import { accepting } from '../accept.ts'
import { activityList } from '../activity.ts'
import { byId, commonView, Name, resourceView, Tags, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'
import { resourceOperations } from '../resources.ts'

const dayMs = 86_400_000

const Chain = z.string().min(1).max(longestPem).describe('PEM: the certificate, then its issuers')
const Key = z
  .string()
  .min(1)
  .max(16 * 1024)
  .describe('PEM, without a passphrase; never shown again')

// HTTP-01 proves names only, and no wildcards. A single label is no public name.
const Domain = z
  .string()
  .max(253)
  .regex(/^(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))+$/)
  .regex(/[a-z][a-z0-9-]*$/, { message: 'must be a name, not an address' })
const Domains = z
  .array(Domain)
  .min(1)
  .max(20)
  .refine((domains) => new Set(domains).size === domains.length, { message: 'must differ' })
  .describe('Instead of a certificate: host names for which the platform obtains one by ACME and renews it')

const CertificateView = z
  .strictObject({
    ...resourceView,
    status: z.enum(certificateStates.all),
    source: z.enum(['upload', 'acme']),
    certificate_pem: z.string().nullable().describe('Null until it is issued'),
    domains: z.array(z.string()),
    issuer: z.string().nullable(),
    not_before: Timestamp.nullable(),
    not_after: Timestamp.nullable(),
    days_left: z.int().nullable().describe('Whole days until it expires; negative after that'),
    renews_at: Timestamp.nullable().describe('When the platform next tries to renew it; null for uploads'),
    fingerprint: z.string().nullable().describe('SHA-256 of the first certificate'),
  })
  .meta({ id: 'Certificate' })

const toView = (certificate: CertificateDocument): z.output<typeof CertificateView> => ({
  ...commonView(certificate),
  source: certificate.source,
  certificate_pem: certificate.certificate_pem,
  domains: certificate.domains,
  issuer: certificate.issuer,
  not_before: certificate.not_before && time(certificate.not_before),
  not_after: certificate.not_after && time(certificate.not_after),
  days_left: certificate.not_after && Math.floor((certificate.not_after.getTime() - Date.now()) / dayMs),
  renews_at: certificate.renews_at && time(certificate.renews_at),
  fingerprint: certificate.fingerprint,
})

const common = resourceOperations({
  resource: certificateResource,
  plural: 'certificates',
  deletion: 'Delete a certificate that no load balancer uses',
  view: CertificateView,
  toView,
  stored: { days_left: 'not_after' },
})

export const certificates = [
  common.list,

  operation({
    method: 'POST',
    path: '/api/v1/certificates',
    permission: 'certificates:create',
    summary: 'Upload a certificate with its private key (201), or obtain one for domains by ACME (202)',
    body: z
      .strictObject({
        name: Name,
        tags: Tags.default({}),
        certificate_pem: Chain.optional(),
        private_key_pem: Key.optional(),
        domains: Domains.optional(),
      })
      .refine(isUploadOrOrder, {
        message: 'must have either certificate_pem and private_key_pem, or domains',
        path: ['certificate_pem'],
      }),
    responses: { 201: CertificateView, 202: CertificateView },
    handle: async ({ caller, body: { name, tags, certificate_pem, private_key_pem, domains } }) => {
      if (certificate_pem === undefined || private_key_pem === undefined)
        return accepting(caller, toView, (by) =>
          acceptCertificate(by, { name, tags, domains: domains ?? [] }),
        )
      const upload = { name, tags, certificate_pem, private_key_pem }
      const certificate = await createCertificate(caller.tenant_id, upload)
      return { location: `/api/v1/certificates/${certificate._id}`, body: toView(certificate) }
    },
  }),

  common.get,

  operation({
    method: 'PUT',
    path: '/api/v1/certificates/{id}',
    permission: 'certificates:update',
    summary: 'Update a certificate’s name or tags, or replace an uploaded one and its key',
    params: byId,
    body: z
      .strictObject({ name: Name, tags: Tags, certificate_pem: Chain, private_key_pem: Key })
      .partial()
      .refine(
        ({ certificate_pem, private_key_pem }) =>
          (certificate_pem === undefined) === (private_key_pem === undefined),
        { message: 'a certificate is replaced together with its key', path: ['private_key_pem'] },
      ),
    responses: { 200: CertificateView },
    handle: async ({ caller, params, body: { name, tags, certificate_pem, private_key_pem } }) =>
      toView(
        await changeCertificate(caller.tenant_id, params.id, {
          ...(name === undefined ? {} : { name }),
          ...(tags === undefined ? {} : { tags }),
          ...(certificate_pem === undefined || private_key_pem === undefined
            ? {}
            : { upload: { certificate_pem, private_key_pem } }),
        }),
      ),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/certificates/{id}/renew',
    permission: 'certificates:update',
    summary: 'Renew a certificate by ACME now, or try again to obtain it',
    params: byId,
    responses: { 202: CertificateView },
    handle: ({ caller, params }) => accepting(caller, toView, (by) => acceptRenewal(by, params.id)),
  }),

  common.delete,

  activityList({
    path: '/api/v1/certificates/{id}/activity',
    permission: 'certificates:read',
    summary: 'List what happened to a certificate: its issue, failed renewals, expiry warnings',
    ownerOf: (caller, id) => mine(certificateResource, caller, id),
  }),
]

interface Sent {
  certificate_pem?: string | undefined
  private_key_pem?: string | undefined
  domains?: string[] | undefined
}
function isUploadOrOrder({ certificate_pem, private_key_pem, domains }: Sent): boolean {
  const isWhole = certificate_pem !== undefined && private_key_pem !== undefined
  const isEmpty = certificate_pem === undefined && private_key_pem === undefined
  return domains === undefined ? isWhole : isEmpty
}
