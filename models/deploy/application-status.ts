import { replicasSampledSince } from '../compute/samples.ts'
import { urlAt } from '../network/load-balancer-endpoints.ts'
import { Route } from '../network/load-balancer-routes.ts'
import { LoadBalancer } from '../network/load-balancers.ts'
import { healthOf } from '../network/observe-load-balancers.ts'
import type { ApplicationDocument } from './applications.ts'
import { Deployment, type DeploymentDocument } from './deployments.ts'
import { hostNameOf } from './application-routes.ts'
import type { DeployServerDocument } from './deploy-servers.ts'

/**
 * `created`: no release has served yet. `deploying`: its first release is on its way. `unhealthy`: no replica serves.
 * Any status that begins with `running`: at least one does. A replica without a port serves while it runs.
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
  const currentIds = applications.flatMap(({ current_id }) => current_id ?? [])
  const [balancer, routes, health, releases] = await Promise.all([
    lb_id ? LoadBalancer.findOne({ _id: lb_id, tenant_id }).lean() : null,
    routeIds.length ? Route.find({ _id: { $in: routeIds }, tenant_id }).lean() : [],
    lb_id && routeIds.length ? healthOf([lb_id]) : new Map<string, string>(),
    currentIds.length
      ? Deployment.find(
          { _id: { $in: currentIds }, tenant_id },
          { app_id: 1, port: 1, places: 1, phases: 1 },
        ).lean<Current[]>()
      : [],
  ])
  const byId = new Map(routes.map((route) => [route._id, route]))
  const currents = new Map(releases.map((release) => [release.app_id, release]))
  const runs = await runningReplicas(tenant_id, releases)
  return new Map(
    applications.map((application) => {
      // The application’s own port is that of its next release.
      const current = currents.get(application._id)
      const { port } = current ?? application
      const targets = byId.get(application.route_id ?? '')?.targets ?? []
      const healthy = targets.filter(({ id }) => health.get(`${application.route_id} ${id}`) !== 'unhealthy')
      const serving =
        current && port === null
          ? { healthy: runs(current), all: current.places.length }
          : { healthy: healthy.length, all: targets.length }
      const url =
        port === null || !balancer ? null : urlAt(balancer, 'http', hostNameOf(application, server, domain))
      return [application._id, { status: statusOf(application, serving), url }]
    }),
  )
}

/** A deployment whose release serves. */
type Current = Pick<DeploymentDocument, '_id' | 'app_id' | 'port' | 'places' | 'phases'>

/** A host samples every ten seconds what runs. */
const freshMs = 35_000

/** How many replicas of a release run, by what hosts have told. A new release has run when it was switched to. */
async function runningReplicas(
  tenant_id: string,
  releases: Current[],
): Promise<(release: Current) => number> {
  const since = new Date(Date.now() - freshMs)
  const appIds = releases.flatMap(({ port, app_id }) => (port === null ? [app_id] : []))
  const sampled = appIds.length ? await replicasSampledSince(tenant_id, appIds, since) : new Set<string>()
  return ({ places, phases }) => {
    const [last] = phases.slice(-1)
    if (last && last.at > since) return places.length
    return places.filter(({ service_id }) => sampled.has(service_id)).length
  }
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
