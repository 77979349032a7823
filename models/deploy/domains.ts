import mongoose from 'mongoose'
import { InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import { accepts, type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import { type CertificateDocument, Certificate } from '../network/certificates.ts'
import type { Accepted } from '../operations.ts'
import { defineResource, mine, named, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Application, type ApplicationDocument } from './applications.ts'

// The domains of applications: host names of the tenant's own, each with a route of the deploy server's load balancer,
// and a certificate by ACME.

export const domainStates = states(
  {
    creating: {},
    active: { delete: 'deleting' },
    /** It has no certificate. Its requests are served without TLS. */
    error: { retry: 'retrying', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete'] },
)

export interface DomainDocument extends ResourceDocument<StateOf<typeof domainStates>> {
  deploy_server_id: string
  app_id: string
  /** The host name to which its requests are redirected; null: the application answers. */
  redirect_to: string | null
  tls: boolean
  /** Plain HTTP is redirected, once the domain is secured. */
  redirect_to_https: boolean
  /** The load balancer has had its certificate. */
  secured: boolean
  certificate_id: string | null
}

const schema = resourceSchema<DomainDocument>(
  {
    deploy_server_id: { type: String, required: true },
    app_id: { type: String, required: true },
    redirect_to: { type: String, default: null },
    tls: { type: Boolean, required: true },
    redirect_to_https: { type: Boolean, required: true },
    secured: { type: Boolean, default: false },
    certificate_id: { type: String, default: null },
  },
  domainStates,
  'domains',
  { within: 'deploy_server_id' },
)
schema.index({ app_id: 1 })
export const Domain = mongoose.model<DomainDocument>('Domain', schema)
export const domainResource = defineResource('domain', Domain, domainStates)

export const domainsAtMost = 50

export type NewDomain = Pick<DomainDocument, 'app_id' | 'name' | 'redirect_to' | 'tls' | 'redirect_to_https'>

/** Throws NotFound, NameTaken, InvalidInput and `too_many_domains`. */
export const acceptDomain = (by: By, { app_id, ...fields }: NewDomain): Promise<Accepted<DomainDocument>> =>
  named('domain', fields.name, () =>
    transaction(async () => {
      const { tenant_id } = by
      if (fields.redirect_to === fields.name)
        throw new InvalidInput(422, [{ pointer: '/redirect_to', message: 'must be another host name' }])
      // Touched, so that a deletion that is accepted meanwhile comes first or sees the domain.
      const application = await Application.findOneAndUpdate(
        { _id: app_id, tenant_id, status: 'active' as const },
        { $set: { updated_at: new Date() } },
      ).lean()
      if (!application) throw new NotFound('application')
      if ((await Domain.countDocuments({ app_id, tenant_id })) >= domainsAtMost) {
        const detail = `An application has at most ${domainsAtMost} domains`
        throw new Problem(409, 'too_many_domains', 'Too many domains', detail)
      }
      const { deploy_server_id } = application
      return create(by, domainResource, {
        fields: { ...fields, app_id, deploy_server_id, secured: false, certificate_id: null, tags: {} },
      })
    }, app_id),
  )

accepts(domainResource, { create: acceptDomain })

/** The domain of this application. Throws NotFound. */
export async function domainOf(
  { _id: app_id, tenant_id }: ApplicationDocument,
  id: string,
): Promise<DomainDocument> {
  const domain = await mine(domainResource, { tenant_id }, id)
  if (domain.app_id !== app_id) throw new NotFound('domain')
  return domain
}

/** Those that stay. */
export const domainsOf = ({ _id, tenant_id }: ApplicationDocument): Promise<DomainDocument[]> =>
  Domain.find({ app_id: _id, tenant_id, status: { $ne: 'deleting' } })
    .sort({ _id: 1 })
    .lean()

/** The domain without a check of its tenant, for activities. Null if it is gone. */
export const findDomain = (id: string): Promise<DomainDocument | null> =>
  Domain.findById(id).setOptions(everyTenant).lean()

/** The name of a domain's certificate. */
export const certificateNameOf = ({ _id }: Pick<DomainDocument, '_id'>): string => `domain-${_id.slice(-12)}`

/** The certificate that the platform has asked for. Null: none yet. */
export const certificateOf = (domain: DomainDocument): Promise<CertificateDocument | null> =>
  Certificate.findOne({ tenant_id: domain.tenant_id, name: certificateNameOf(domain) }).lean()
