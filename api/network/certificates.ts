import { z } from 'zod'
import {
  type CertificateDocument,
  certificateResource,
  certificateStates,
  changeCertificate,
  createCertificate,
} from '../../models/network/certificates.ts'
import { longestPem } from '../../models/network/chains.ts'
import { byId, commonView, Name, resourceView, Tags, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'
import { resourceOperations } from '../resources.ts'

const Chain = z.string().min(1).max(longestPem).describe('PEM: the certificate, then its issuers')
const Key = z
  .string()
  .min(1)
  .max(16 * 1024)
  .describe('PEM, without a passphrase; never shown again')

const CertificateView = z
  .strictObject({
    ...resourceView,
    status: z.enum(certificateStates.all),
    certificate_pem: z.string(),
    domains: z.array(z.string()),
    issuer: z.string(),
    not_before: Timestamp,
    not_after: Timestamp,
    fingerprint: z.string().describe('SHA-256 of the first certificate'),
  })
  .meta({ id: 'Certificate' })

const toView = (certificate: CertificateDocument): z.output<typeof CertificateView> => ({
  ...commonView(certificate),
  certificate_pem: certificate.certificate_pem,
  domains: certificate.domains,
  issuer: certificate.issuer,
  not_before: time(certificate.not_before),
  not_after: time(certificate.not_after),
  fingerprint: certificate.fingerprint,
})

const common = resourceOperations({
  resource: certificateResource,
  plural: 'certificates',
  deletion: 'Delete a certificate that no load balancer uses',
  view: CertificateView,
  toView,
})

export const certificates = [
  common.list,

  operation({
    method: 'POST',
    path: '/api/v1/certificates',
    permission: 'certificates:create',
    summary: 'Upload a certificate with its private key',
    body: z.strictObject({
      name: Name,
      tags: Tags.default({}),
      certificate_pem: Chain,
      private_key_pem: Key,
    }),
    responses: { 201: CertificateView },
    handle: async ({ caller, body }) => {
      const certificate = await createCertificate(caller.tenant_id, body)
      return { location: `/api/v1/certificates/${certificate._id}`, body: toView(certificate) }
    },
  }),

  common.get,

  operation({
    method: 'PUT',
    path: '/api/v1/certificates/{id}',
    permission: 'certificates:update',
    summary: 'Update a certificate’s name or tags, or replace it and its key',
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

  common.delete,
]
