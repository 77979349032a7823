import { z } from 'zod'
import { seenApplications, applicationStatuses } from '../../models/deploy/application-status.ts'
import {
  Application,
  type ApplicationDocument,
  applicationOf,
  applicationResource,
  openEnvs,
} from '../../models/deploy/applications.ts'
import {
  acceptDeployment,
  type AskedDeployment,
  changeApplication,
  createApplication,
  removeEnv,
  setEnvs,
} from '../../models/deploy/deployment-acceptance.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { begin } from '../../models/acceptance.ts'
import { byOf } from '../accept.ts'
import { byId, commonView, Id, Name, resourceView } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import {
  creatableRelease,
  Envs,
  ImageTag,
  releaseFields,
  releaseView,
  toReleaseView,
} from './application-fields.ts'
import { inDeployServer } from './children.ts'
import { DeploymentView, path, toDeploymentView } from './deployments.ts'

const ApplicationView = z
  .strictObject({
    ...resourceView,
    uuid: Id.describe('The same as `id`'),
    deploy_server_id: Id,
    status: z.enum(applicationStatuses).describe('Begins with `running` while at least one replica serves'),
    url: z.url().nullable().describe('Where clients reach it'),
    ...releaseView,
    deployment_id: Id.nullable().describe('The deployment whose release serves'),
    deploying_id: Id.nullable().describe('The deployment in progress'),
  })
  .meta({ id: 'Application' })
type View = z.output<typeof ApplicationView>

const byApp = z.strictObject({ id: Id, app: Id })
const Message = z
  .string()
  .max(500)
  .nullable()
  .default(null)
  .describe('A message that is shown with the deployment')
const Commit = z
  .string()
  .regex(/^[0-9a-f]{7,64}$/)
  .nullable()
  .default(null)
  .describe('The commit that is released: 7 to 64 hexadecimal digits')

/** The HTTP operations on applications. */
export function makeApplications({ appsDomain = 'localhost' }: OperationsContext) {
  async function toViews(applications: ApplicationDocument[]): Promise<View[]> {
    const [first] = applications
    if (!first) return []
    const { tenant_id, deploy_server_id } = first
    const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
    const seen = server ? await seenApplications(server, applications, appsDomain) : new Map<string, never>()
    return applications.map((application) => ({
      ...commonView(application),
      uuid: application._id,
      deploy_server_id: application.deploy_server_id,
      status: seen.get(application._id)?.status ?? 'deleting',
      url: seen.get(application._id)?.url ?? null,
      ...toReleaseView(application),
      deployment_id: application.current_id,
      deploying_id: application.turn_id,
    }))
  }

  async function viewOf(application: ApplicationDocument): Promise<View> {
    const [view] = await toViews([application])
    return view as View
  }

  /** Accepts a deployment of the application, and answers with it. */
  async function deploying(
    caller: Caller,
    params: z.output<typeof byApp>,
    asked: Omit<AskedDeployment, 'app_id'>,
  ) {
    const { _id, name } = await applicationOf(caller, params.id, params.app)
    const by = byOf(caller)
    const { document, operation: accepted } = await acceptDeployment(by, { ...asked, app_id: _id })
    return { operation_id: accepted._id, body: toDeploymentView(document, name) }
  }

  return [
    list({
      path: `${path}/applications`,
      permission: 'deploy_servers:read',
      summary: 'List the applications of a deploy server',
      params: byId,
      model: Application,
      view: ApplicationView,
      toViews,
      stored: { uuid: '_id', deployment_id: 'current_id', deploying_id: 'turn_id' },
      scope: inDeployServer,
      without: ['envs_sealed'],
    }),

    operation({
      method: 'POST',
      path: `${path}/applications`,
      permission: 'deploy_servers:manage',
      summary: 'Create an application from an image, and deploy it',
      params: byId,
      body: z.strictObject({
        ...creatableRelease,
        name: Name.describe('Unique in the deploy server; the first part of its host name'),
        envs: Envs.default({}).describe('Environment variables'),
        deploy: z.boolean().default(true).describe('Deploy at once'),
      }),
      responses: { 201: ApplicationView, 202: ApplicationView },
      handle: async ({ caller, params: { id }, body: { deploy, ...fields } }) => {
        const by = byOf(caller)
        const { application, deployment } = await createApplication(by, id, fields, deploy)
        const body = await viewOf(application)
        if (deployment) return { operation_id: deployment.operation._id, body }
        return { location: `/api/v1/deploy-servers/${id}/applications/${application._id}`, body }
      },
    }),

    operation({
      method: 'GET',
      path: `${path}/applications/{app}`,
      permission: 'deploy_servers:read',
      summary: 'Get an application',
      params: byApp,
      responses: { 200: ApplicationView },
      handle: async ({ caller, params }) => viewOf(await applicationOf(caller, params.id, params.app)),
    }),

    operation({
      method: 'PATCH',
      path: `${path}/applications/{app}`,
      permission: 'deploy_servers:manage',
      summary: 'Change what the next deployment of an application releases',
      params: byApp,
      body: z.strictObject(releaseFields).partial(),
      responses: { 200: ApplicationView },
      handle: async ({ caller, params, body }) =>
        viewOf(await changeApplication(await applicationOf(caller, params.id, params.app), body)),
    }),

    operation({
      method: 'DELETE',
      path: `${path}/applications/{app}`,
      permission: 'deploy_servers:manage',
      summary: 'Delete an application with its deployments',
      params: byApp,
      responses: { 202: ApplicationView },
      handle: async ({ caller, params }) => {
        const { _id, deploy_server_id } = await applicationOf(caller, params.id, params.app)
        const by = byOf(caller)
        const input = { deploy_server_id }
        const { document, operation: accepted } = await begin(by, applicationResource, _id, 'delete', {
          input,
        })
        return { operation_id: accepted._id, body: await viewOf(document) }
      },
    }),

    operation({
      method: 'POST',
      path: `${path}/applications/{app}/deploy`,
      permission: 'deploy_servers:manage',
      summary: 'Deploy an application: a new tag, an earlier tag, or an earlier deployment as it was',
      params: byApp,
      body: z
        .strictObject({
          tag: ImageTag.optional().describe('The tag to deploy, which becomes the application’s tag'),
          deployment_id: Id.optional().describe(
            'Release again what this deployment released, with its environment',
          ),
          message: Message,
          commit: Commit,
        })
        .refine(
          ({ tag, deployment_id }) => !(tag && deployment_id),
          'must have either a tag or a deployment_id',
        )
        .prefault({}),
      responses: { 202: DeploymentView },
      handle: ({ caller, params, body: { tag, deployment_id, ...told } }) =>
        deploying(
          caller,
          params,
          deployment_id
            ? { kind: 'promote', of_id: deployment_id, ...told }
            : { kind: 'deploy', tag, ...told },
        ),
    }),

    ...(['restart', 'stop'] as const).map((kind) =>
      operation({
        method: 'POST',
        path: `${path}/applications/{app}/${kind}`,
        permission: 'deploy_servers:manage',
        summary:
          kind === 'restart'
            ? 'Restart an application without downtime, with its current environment variables'
            : 'Stop an application; deploying it starts it again',
        params: byApp,
        responses: { 202: DeploymentView },
        handle: ({ caller, params }) => deploying(caller, params, { kind, message: null }),
      }),
    ),

    operation({
      method: 'GET',
      path: `${path}/applications/{app}/envs`,
      permission: 'deploy_servers:manage',
      summary: 'Get an application’s environment variables (audited)',
      params: byApp,
      responses: { 200: z.strictObject({ envs: Envs }) },
      reads_secret: true,
      handle: async ({ caller, params }) => ({
        envs: await openEnvs(await applicationOf(caller, params.id, params.app)),
      }),
    }),

    operation({
      method: 'POST',
      path: `${path}/applications/{app}/envs`,
      permission: 'deploy_servers:manage',
      summary: 'Set environment variables and keep the others; the next deployment or restart applies them',
      params: byApp,
      body: z.strictObject({ envs: Envs }),
      responses: { 200: z.strictObject({ envs: Envs }) },
      handle: async ({ caller, params, body }) => ({
        envs: await setEnvs(await applicationOf(caller, params.id, params.app), body.envs),
      }),
    }),

    operation({
      method: 'DELETE',
      path: `${path}/applications/{app}/envs/{key}`,
      permission: 'deploy_servers:manage',
      summary: 'Remove an environment variable; the next deployment or restart applies the change',
      params: z.strictObject({ id: Id, app: Id, key: z.string().max(128) }),
      responses: { 204: null },
      handle: async ({ caller, params: { key, ...params } }) => {
        await removeEnv(await applicationOf(caller, params.id, params.app), key)
      },
    }),
  ]
}
