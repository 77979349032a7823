import { z } from 'zod'
import { applicationOf } from '../../models/deploy/applications.ts'
import {
  acceptDomain,
  Domain,
  type DomainDocument,
  domainOf,
  domainResource,
  domainStates,
} from '../../models/deploy/domains.ts'
import { begin } from '../../models/acceptance.ts'
import { HostMatch } from '../network/load-balancer-fields.ts'
import { commonView, Id, resourceView } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'
import { path as serverPath } from './deployments.ts'

// With a dot: its route must not have the name of an application’s own one.
const HostName = HostMatch.refine(
  (name) => !name.startsWith('*.') && name.includes('.'),
  'must be a host name with a dot, without *',
)

const DomainView = z
  .strictObject({
    ...resourceView,
    deploy_server_id: Id,
    app_id: Id,
    status: z.enum(domainStates.all).describe('`error`: it is served without TLS'),
    redirect_to: z.string().nullable(),
    tls: z.boolean(),
    certificate_id: Id.nullable().describe('The certificate by ACME'),
  })
  .meta({ id: 'ApplicationDomain' })

const toView = (domain: DomainDocument): z.output<typeof DomainView> => ({
  ...commonView(domain),
  deploy_server_id: domain.deploy_server_id,
  app_id: domain.app_id,
  status: domain.status,
  redirect_to: domain.redirect_to,
  tls: domain.tls,
  certificate_id: domain.certificate_id,
})

const path = `${serverPath}/applications/{app}/domains`
const byApp = z.strictObject({ id: Id, app: Id })
const byDomain = z.strictObject({ id: Id, app: Id, domain: Id })
const find = async (
  caller: Caller,
  { id, app, domain }: z.output<typeof byDomain>,
): Promise<DomainDocument> => domainOf(await applicationOf(caller, id, app), domain)
const byOf = ({ tenant_id, id }: Caller) => ({ tenant_id, id, over_http: true as const })

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
    summary: 'Give an application a domain with a certificate by ACME, or redirect one',
    params: byApp,
    body: z.strictObject({
      name: HostName.describe('A host name whose address is that of the load balancer'),
      tls: z.boolean().default(true).describe('Obtain a certificate, and serve it over HTTPS too'),
      redirect_to: HostName.nullable()
        .default(null)
        .describe('Redirect to this host name, with the path kept'),
    }),
    responses: { 202: DomainView },
    handle: async ({ caller, params: { id, app }, body }) => {
      const { _id } = await applicationOf(caller, id, app)
      const { document, operation: accepted } = await acceptDomain(byOf(caller), { ...body, app_id: _id })
      return { operation_id: accepted._id, body: toView(document) }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{domain}`,
    permission: 'deploy_servers:read',
    summary: 'Get a domain of an application',
    params: byDomain,
    responses: { 200: DomainView },
    handle: async ({ caller, params }) => toView(await find(caller, params)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{domain}/retry`,
    permission: 'deploy_servers:manage',
    summary: 'Obtain the certificate of a domain again, after it failed',
    params: byDomain,
    responses: { 202: DomainView },
    handle: async ({ caller, params }) => {
      const { _id } = await find(caller, params)
      const { document, operation: accepted } = await begin(byOf(caller), domainResource, _id, 'retry')
      return { operation_id: accepted._id, body: toView(document) }
    },
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{domain}`,
    permission: 'deploy_servers:manage',
    summary: 'Remove a domain of an application, with its certificate',
    params: byDomain,
    responses: { 202: DomainView },
    handle: async ({ caller, params }) => {
      const { _id } = await find(caller, params)
      const { document, operation: accepted } = await begin(byOf(caller), domainResource, _id, 'delete')
      return { operation_id: accepted._id, body: toView(document) }
    },
  }),
]
