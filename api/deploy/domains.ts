import { z } from 'zod'
import { applicationOf } from '../../models/deploy/applications.ts'
import { routeDomain, unrouteDomain } from '../../models/deploy/application-routes.ts'
import { createDomain, deleteDomain, Domain, type DomainDocument } from '../../models/deploy/domains.ts'
import { HostMatch } from '../network/load-balancer-fields.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { path as serverPath } from './deployments.ts'

// With a dot: its route must not have the name of an application’s own one.
const HostName = HostMatch.refine(
  (name) => !name.startsWith('*.') && name.includes('.'),
  'must be a host name with a dot, without *',
)

const DomainView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    deploy_server_id: Id,
    app_id: Id,
    name: z.string(),
    redirect_to: z.string().nullable(),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'ApplicationDomain' })

const toView = (domain: DomainDocument): z.output<typeof DomainView> => ({
  id: domain._id,
  tenant_id: domain.tenant_id,
  deploy_server_id: domain.deploy_server_id,
  app_id: domain.app_id,
  name: domain.name,
  redirect_to: domain.redirect_to,
  created_at: time(domain.created_at),
  updated_at: time(domain.updated_at),
})

const path = `${serverPath}/applications/{app}/domains`
const byApp = z.strictObject({ id: Id, app: Id })

/** The HTTP operations on domains. */
export const domains = [
  list({
    path,
    permission: 'deploy_servers:read',
    summary: 'List the domains of an application',
    params: byApp,
    model: Domain,
    view: DomainView,
    toView,
    scope: async (caller, { id, app }) => {
      const { _id, tenant_id } = await applicationOf(caller, id, app)
      return { tenant_id, app_id: _id }
    },
  }),

  operation({
    method: 'POST',
    path,
    permission: 'deploy_servers:manage',
    summary: 'Give an application a domain, which leads to it or is redirected. It takes effect at once',
    params: byApp,
    body: z.strictObject({
      name: HostName.describe('A host name whose address is that of the load balancer'),
      redirect_to: HostName.nullable()
        .default(null)
        .describe('Redirect to this host name, with the path kept'),
    }),
    responses: { 201: DomainView },
    handle: async ({ caller, params: { id, app }, body }) => {
      const domain = await createDomain(await applicationOf(caller, id, app), body, routeDomain)
      const location = `/api/v1/deploy-servers/${id}/applications/${app}/domains/${domain._id}`
      return { location, body: toView(domain) }
    },
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{domain}`,
    permission: 'deploy_servers:manage',
    summary: 'Remove a domain of an application',
    params: z.strictObject({ id: Id, app: Id, domain: Id }),
    responses: { 204: null },
    handle: async ({ caller, params: { id, app, domain } }) =>
      deleteDomain(await applicationOf(caller, id, app), domain, unrouteDomain),
  }),
]
