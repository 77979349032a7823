import { urlAt } from '../network/load-balancer-endpoints.ts'
import { Route } from '../network/load-balancer-routes.ts'
import { LoadBalancer } from '../network/load-balancers.ts'
import { healthOf } from '../network/observe-load-balancers.ts'
import type { ApplicationDocument } from './applications.ts'
import { hostNameOf } from './application-routes.ts'
import type { DeployServerDocument } from './deploy-servers.ts'

/**
 * `created`: no release has served yet. `deploying`: its first release is on its way. `unhealthy`: no replica serves.
 * Any status that begins with `running`: at least one does.
 */
export const applicationStatuses = [
  'created',
  'deploying',
  'running',
  'running:degraded',
  'running:updating',
  'unhealthy',
  'stopped',
  'deleting',
  'error',
] as const
export type ApplicationStatus = (typeof applicationStatuses)[number]

export interface Seen {
  status: ApplicationStatus
  /** Where clients reach it. Null without a port, or while the load balancer is being made. */
  url: string | null
}

/** What the applications of one deploy server do now, by their ids. */
export async function seenApplications(
  server: DeployServerDocument,
  applications: ApplicationDocument[],
  domain: string,
): Promise<Map<string, Seen>> {
  const { tenant_id, lb_id } = server
  const routeIds = applications.flatMap(({ route_id }) => route_id ?? [])
  const [balancer, routes, health] = await Promise.all([
    lb_id ? LoadBalancer.findOne({ _id: lb_id, tenant_id }).lean() : null,
    routeIds.length ? Route.find({ _id: { $in: routeIds }, tenant_id }).lean() : [],
    lb_id && routeIds.length ? healthOf([lb_id]) : new Map<string, string>(),
  ])
  const byId = new Map(routes.map((route) => [route._id, route]))
  return new Map(
    applications.map((application) => {
      const targets = byId.get(application.route_id ?? '')?.targets ?? []
      const healthy = targets.filter(({ id }) => health.get(`${application.route_id} ${id}`) !== 'unhealthy')
      const serving =
        application.port === null ? { healthy: 1, all: 1 } : { healthy: healthy.length, all: targets.length }
      const url =
        application.port === null || !balancer
          ? null
          : urlAt(balancer, 'http', hostNameOf(application, server, domain))
      return [application._id, { status: statusOf(application, serving), url }]
    }),
  )
}

function statusOf(
  { status, current_id, turn_id, stopped }: ApplicationDocument,
  { healthy, all }: { healthy: number; all: number },
): ApplicationStatus {
  if (status !== 'active') return status
  if (current_id === null) return turn_id ? 'deploying' : stopped ? 'stopped' : 'created'
  if (healthy === 0) return 'unhealthy'
  if (turn_id) return 'running:updating'
  return healthy < all ? 'running:degraded' : 'running'
}
