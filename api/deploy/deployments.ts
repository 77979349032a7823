import { cancelWork, inDeployServer } from './children.ts'
import { z } from 'zod'
import { Application } from '../../models/deploy/applications.ts'
import {
  Deployment,
  type DeploymentDocument,
  deploymentKinds,
  deploymentOf,
} from '../../models/deploy/deployments.ts'
import { byId, Id, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { releaseView, toReleaseView } from './application-fields.ts'

const deploymentStatuses = ['queued', 'deploying', 'succeeded', 'failed', 'cancelled', 'superseded'] as const

export const DeploymentView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    uuid: Id.describe('The same as `id`'),
    deploy_server_id: Id,
    app_id: Id,
    app: z.string().describe('The name of the application'),
    number: z.int().describe('The number of the deployment, counted per application'),
    kind: z.enum(deploymentKinds),
    status: z.enum(deploymentStatuses),
    status_reason: z.string().nullable(),
    operation_id: Id.nullable(),
    message: z.string().nullable().describe('The caller’s message about the deployment'),
    commit: z
      .string()
      .nullable()
      .describe('The commit that the caller named, or the commit of the release that the deployment repeats'),
    of_id: Id.nullable().describe('The deployment whose release it repeats'),
    requested_by: Id.nullable().describe(
      'The user, API client or deploy server; null when the platform itself began it',
    ),
    ...releaseView,
    build_id: Id.nullable().describe(
      'The build that made the image; null: the image is from another registry',
    ),
    phases: z.array(
      z.strictObject({
        phase: z.string(),
        at: Timestamp,
        duration_ms: z.int().nonnegative().nullable().describe('null: it is the present phase'),
      }),
    ),
    created_at: Timestamp,
    updated_at: Timestamp,
    ended_at: Timestamp.nullable(),
  })
  .meta({ id: 'Deployment' })
type View = z.output<typeof DeploymentView>

const DeploymentDetail = z
  .strictObject({
    ...DeploymentView.shape,
    log: z.array(z.strictObject({ time: Timestamp, line: z.string() })).describe('The last 500 lines'),
  })
  .meta({ id: 'DeploymentDetail' })

function statusOf({ status, superseded, phases }: DeploymentDocument): View['status'] {
  if (superseded) return 'superseded'
  if (status === 'creating') return phases.length > 1 ? 'deploying' : 'queued'
  return status === 'error' ? 'failed' : status
}

export const toDeploymentView = (deployment: DeploymentDocument, app: string): View => ({
  id: deployment._id,
  tenant_id: deployment.tenant_id,
  uuid: deployment._id,
  deploy_server_id: deployment.deploy_server_id,
  app_id: deployment.app_id,
  app,
  number: deployment.number,
  kind: deployment.kind,
  status: statusOf(deployment),
  status_reason: deployment.status_reason,
  operation_id: deployment.operation_id,
  message: deployment.message,
  commit: deployment.commit,
  of_id: deployment.of_id,
  requested_by: deployment.requested_by,
  ...toReleaseView(deployment),
  build_id: deployment.built?.build_id ?? null,
  phases: deployment.phases.map(({ phase, at }, index, all) => {
    const ended = all[index + 1]?.at ?? deployment.ended_at
    return { phase, at: time(at), duration_ms: ended && Math.max(0, ended.getTime() - at.getTime()) }
  }),
  created_at: time(deployment.created_at),
  updated_at: time(deployment.updated_at),
  ended_at: timeOrNull(deployment.ended_at),
})

async function toViews(deployments: DeploymentDocument[]): Promise<View[]> {
  const [{ tenant_id } = { tenant_id: '' }] = deployments
  const ids = deployments.map(({ app_id }) => app_id)
  const apps = ids.length ? await Application.find({ _id: { $in: ids }, tenant_id }, { name: 1 }).lean() : []
  const names = new Map(apps.map(({ _id, name }) => [_id, name]))
  return deployments.map((one) => toDeploymentView(one, names.get(one.app_id) ?? ''))
}

export const path = '/api/v1/deploy-servers/{id}'
const byDeployment = z.strictObject({ id: Id, deployment: Id })

export const makeDeployments = ({ cancel }: OperationsContext) => [
  list({
    path: `${path}/deployments`,
    permission: 'deploy_servers:read',
    summary: 'List the deployments of all applications of a deploy server',
    params: byId,
    model: Deployment,
    view: DeploymentView,
    toViews,
    stored: { uuid: '_id', build_id: 'built.build_id' },
    scope: inDeployServer,
    without: ['envs_sealed', 'log'],
  }),

  operation({
    method: 'GET',
    path: `${path}/deployments/{deployment}`,
    permission: 'deploy_servers:read',
    summary: 'Get a deployment with its log',
    params: byDeployment,
    responses: { 200: DeploymentDetail },
    handle: async ({ caller, params }) => {
      const deployment = await deploymentOf(caller, params.id, params.deployment)
      const [view] = await toViews([deployment])
      const log = deployment.log.map((entry) => ({ time: time(entry.time), line: entry.line }))
      return { ...(view as View), log }
    },
  }),

  operation({
    method: 'POST',
    path: `${path}/deployments/{deployment}/cancel`,
    permission: 'deploy_servers:update',
    summary: 'Cancel a deployment; the previous release continues to serve',
    params: byDeployment,
    responses: { 202: DeploymentView },
    handle: async ({ caller, params }) => {
      const deployment = await deploymentOf(caller, params.id, params.deployment)
      const work = { operation_id: deployment.operation_id, status: statusOf(deployment) }
      const operation_id = await cancelWork(caller, work, cancel)
      const [view] = await toViews([deployment])
      return { operation_id, body: view as View }
    },
  }),
]
