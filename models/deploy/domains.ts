import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { Application, type ApplicationDocument } from './applications.ts'

// The domains of applications: host names of the tenant's own, each with a route of the deploy server's load balancer.

export interface DomainDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  app_id: string
  /** The host name, unique in the deploy server. Its route has the same name. */
  name: string
  /** The host name to which its requests are redirected; null: the application answers. */
  redirect_to: string | null
  created_at: Date
  updated_at: Date
}

const schema = new Schema<DomainDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    app_id: { type: String, required: true },
    name: { type: String, required: true },
    redirect_to: { type: String, default: null },
  },
  { ...documentOptions, collection: 'domains' },
)
tenantScoped(schema)
schema.index({ deploy_server_id: 1, name: 1 }, { unique: true })
schema.index({ app_id: 1 })
export const Domain = mongoose.model<DomainDocument>('Domain', schema)

export const domainsAtMost = 50

/** Makes a domain, and `routes` it in the same transaction. Throws NotFound, `domain_taken` and `too_many_domains`. */
export const createDomain = (
  { _id: app_id, tenant_id, deploy_server_id }: ApplicationDocument,
  fields: Pick<DomainDocument, 'name' | 'redirect_to'>,
  route: (application: ApplicationDocument, domain: DomainDocument) => Promise<void>,
): Promise<DomainDocument> =>
  transaction(async () => {
    if (fields.redirect_to === fields.name)
      throw new InvalidInput(422, [{ pointer: '/redirect_to', message: 'must be another host name' }])
    // Touched, so that a deletion or a deployment that is accepted meanwhile comes first or sees the domain.
    const application = await Application.findOneAndUpdate(
      { _id: app_id, tenant_id, status: 'active' as const },
      { $set: { updated_at: new Date() } },
      { returnDocument: 'after' },
    ).lean()
    if (!application) throw new NotFound('application')
    if ((await Domain.countDocuments({ app_id, tenant_id })) >= domainsAtMost) {
      const detail = `An application has at most ${domainsAtMost} domains`
      throw new Problem(409, 'too_many_domains', 'Too many domains', detail)
    }
    const its = { _id: newId(), tenant_id, deploy_server_id, app_id }
    const domain = (await new Domain({ ...fields, ...its }).save()).toObject()
    await route(application, domain)
    return domain
  }, app_id).catch((error: unknown) => {
    if (!isDuplicateKey(error)) throw error
    const detail = 'An application of the deploy server has this domain'
    throw new Problem(409, 'domain_taken', 'The domain is taken', detail)
  })

/** Removes a domain of the application with its route. Throws NotFound. */
export const deleteDomain = (
  { _id: app_id, tenant_id }: ApplicationDocument,
  id: string,
  unroute: (domain: DomainDocument) => Promise<void>,
): Promise<void> =>
  transaction(async () => {
    const domain = await Domain.findOneAndDelete({ _id: id, app_id, tenant_id }).lean()
    if (!domain) throw new NotFound('domain')
    await unroute(domain)
  }, app_id)

export const domainsOf = ({ _id, tenant_id }: ApplicationDocument): Promise<DomainDocument[]> =>
  Domain.find({ app_id: _id, tenant_id }).sort({ _id: 1 }).lean()
