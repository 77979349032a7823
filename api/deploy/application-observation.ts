import { z } from 'zod'
import { applicationOf } from '../../models/deploy/applications.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { activityFeed } from '../activity.ts'
import { MetricsQuery, MetricsView, metricsOf } from '../compute/observation/metrics.ts'
import { Id } from '../fields.ts'
import { operation } from '../operation.ts'
import { path } from './deployments.ts'

// Metrics and activity of applications.

const params = z.strictObject({ id: Id, app: Id })

export const applicationObservation = [
  operation({
    method: 'GET',
    path: `${path}/applications/{app}/metrics`,
    permission: 'deploy_servers:read',
    summary: 'Get the CPU, memory, network and disk usage of an application: the sum over its replicas',
    params,
    query: MetricsQuery,
    responses: { 200: MetricsView },
    handle: async ({ caller, params: { id, app }, query }) => {
      const { _id: instance_id, tenant_id } = await applicationOf(caller, id, app)
      return metricsOf({ tenant_id, instance_id }, query)
    },
  }),

  activityFeed({
    path: `${path}/applications/{app}/activity`,
    permission: 'deploy_servers:read',
    summary:
      'List what happened to an application: replicas that ended, or that the load balancer cannot reach',
    params,
    scope: async (caller, { id, app }) => {
      const { _id, tenant_id, deploy_server_id, route_id } = await applicationOf(caller, id, app)
      const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }, { lb_id: 1 }).lean()
      const ofRoute = { resource_id: server?.lb_id ?? null, 'data.route_id': route_id }
      return { $or: [{ resource_id: _id }, ...(route_id === null ? [] : [ofRoute])] }
    },
  }),
]
