import { ApplicationFailure } from '@temporalio/activity'
import { routeDomain, unrouteDomain } from '../../models/deploy/application-routes.ts'
import { findApplication } from '../../models/deploy/applications.ts'
import {
  certificateNameOf,
  certificateOf,
  Domain,
  type DomainDocument,
  findDomain,
} from '../../models/deploy/domains.ts'
import { certificatesOfDatabases } from '../../models/deploy/published-databases.ts'
import { ingressOf, wantedListeners } from '../../models/deploy/ingress.ts'
import type { CertificateDocument } from '../../models/network/certificates.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { balancersOf, type Routed } from './deployments.ts'
import { permanently } from '../failures.ts'

/** What a workflow knows of a domain. */
export interface DomainFacts {
  deploy_server_id: string
  tls: boolean
  certificate: {
    /** Null: it has not been asked for. */
    id: string | null
    status: CertificateDocument['status'] | null
    fields: { name: string; tags: Record<string, string>; domains: string[] }
  }
}

/** Activities of domains: short reads and writes of MongoDB. */
export const makeDomainActivities = () => ({
  async domainFacts(id: string): Promise<DomainFacts> {
    const domain = await theDomain(id)
    const certificate = await certificateOf(domain)
    return {
      deploy_server_id: domain.deploy_server_id,
      tls: domain.tls,
      certificate: {
        id: certificate?._id ?? null,
        status: certificate?.status ?? null,
        fields: { name: certificateNameOf(domain), tags: {}, domains: [domain.name] },
      },
    }
  },

  /** Has the load balancer take requests of the domain. Null if there is none. */
  routeDomain: (id: string): Promise<Routed | null> =>
    permanently(async () => {
      const domain = await theDomain(id)
      const application = await findApplication(domain.app_id)
      if (application) await routeDomain(application, domain)
      return routedBy(domain)
    }),

  async unrouteDomain(id: string): Promise<Routed | null> {
    const domain = await theDomain(id)
    await unrouteDomain(domain)
    return routedBy(domain)
  },

  /** Notes that the load balancer has the certificate. */
  async noteSecured(id: string): Promise<void> {
    await Domain.updateOne({ _id: id }, { $set: { secured: true } }).setOptions(everyTenant)
  },

  /** Notes the certificate that was asked for, also if it was not issued. */
  async noteCertificate(id: string): Promise<void> {
    const certificate = await certificateOf(await theDomain(id))
    await Domain.updateOne({ _id: id }, { $set: { certificate_id: certificate?._id ?? null } }).setOptions(
      everyTenant,
    )
  },

  wantedListeners,

  /** The domains of an application. */
  async domainsOfApplication(app_id: string): Promise<string[]> {
    const found = await Domain.find({ app_id }, { _id: 1 }).setOptions(everyTenant).lean()
    return found.map(({ _id }) => _id)
  },

  /** The certificates of a deploy server: of its domains and of its published databases. */
  async certificatesOfDomains(deploy_server_id: string): Promise<string[]> {
    const found = await Domain.find({ deploy_server_id }).setOptions(everyTenant).lean()
    const certificates = await Promise.all(found.map(certificateOf))
    const further = await certificatesOfDatabases(deploy_server_id)
    return [...certificates.flatMap((certificate) => certificate?._id ?? []), ...further]
  },
})

export type DomainActivities = ReturnType<typeof makeDomainActivities>

async function routedBy(domain: DomainDocument): Promise<Routed | null> {
  const balancer = await ingressOf(domain)
  if (!balancer) return null
  return { lb_id: balancer._id, targets: null, host_ids: await balancersOf(balancer._id) }
}

async function theDomain(id: string) {
  const domain = await findDomain(id)
  if (!domain) throw ApplicationFailure.nonRetryable('The domain no longer exists', 'not_found')
  return domain
}
