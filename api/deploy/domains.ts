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
import { ingressOf } from '../../models/deploy/ingress.ts'
import { begin } from '../../models/acceptance.ts'
import { urlAt } from '../../models/network/load-balancer-endpoints.ts'
import { byOf } from '../accept.ts'
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
    url: z.url().nullable().describe('Where clients reach it'),
    tls: z.boolean(),
    redirect_to_https: z.boolean(),
    certificate_id: Id.nullable().describe('The certificate obtained by ACME'),
  })
  .meta({ id: 'ApplicationDomain' })

type View = z.output<typeof DomainView>

/** The domains of one deploy server. */
async function toViews(domains: DomainDocument[]): Promise<View[]> {
  const balancer = domains[0] ? await ingressOf(domains[0]) : null
  return domains.map((domain) => ({
    ...commonView(domain),
    deploy_server_id: domain.deploy_server_id,
    app_id: domain.app_id,
    status: domain.status,
    redirect_to: domain.redirect_to,
    url: balancer && urlAt(balancer, domain.secured ? 'https' : 'http', domain.name),
    tls: domain.tls,
    redirect_to_https: domain.redirect_to_https,
    certificate_id: domain.certificate_id,
  }))
}

async function viewOf(domain: DomainDocument): Promise<View> {
  const [view] = await toViews([domain])
  return view as View
}

const path = `${serverPath}/applications/{app}/domains`
const byApp = z.strictObject({ id: Id, app: Id })
const byDomain = z.strictObject({ id: Id, app: Id, domain: Id })
const find = async (
  caller: Caller,
  { id, app, domain }: z.output<typeof byDomain>,
): Promise<DomainDocument> => domainOf(await applicationOf(caller, id, app), domain)

/** The HTTP operations on domains. */
export const domains = [
  list({
    path,
    permission: 'deploy_servers:read',
    summary: 'List the domains of an application',
    params: byApp,
    model: Domain,
    view: DomainView,
    toViews,
    scope: async (caller, { id, app }) => {
      const { _id, tenant_id } = await applicationOf(caller, id, app)
      return { tenant_id, app_id: _id }
    },
  }),

  operation({
    method: 'POST',
    path,
    permission: 'deploy_servers:manage',
    summary: 'Add a domain that serves an application or redirects, with a certificate by ACME',
    params: byApp,
    body: z.strictObject({
      name: HostName.describe('A host name that resolves to the address of the load balancer'),
      tls: z.boolean().default(true).describe('Obtain a certificate, and serve it over HTTPS too'),
      redirect_to_https: z
        .boolean()
        .default(true)
        .describe('Redirect plain HTTP to HTTPS, once the domain has its certificate'),
      redirect_to: HostName.nullable()
        .default(null)
        .describe('Redirect to this host name, with the path kept'),
    }),
    responses: { 202: DomainView },
    handle: async ({ caller, params: { id, app }, body }) => {
      const { _id } = await applicationOf(caller, id, app)
      const { document, operation: accepted } = await acceptDomain(byOf(caller), { ...body, app_id: _id })
      return { operation_id: accepted._id, body: await viewOf(document) }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{domain}`,
    permission: 'deploy_servers:read',
    summary: 'Get a domain of an application',
    params: byDomain,
    responses: { 200: DomainView },
    handle: async ({ caller, params }) => viewOf(await find(caller, params)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{domain}/retry`,
    permission: 'deploy_servers:manage',
    summary: 'Try again to obtain the certificate of a domain',
    params: byDomain,
    responses: { 202: DomainView },
    handle: async ({ caller, params }) => {
      const { _id } = await find(caller, params)
      const { document, operation: accepted } = await begin(byOf(caller), domainResource, _id, 'retry')
      return { operation_id: accepted._id, body: await viewOf(document) }
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
      return { operation_id: accepted._id, body: await viewOf(document) }
    },
  }),
]
