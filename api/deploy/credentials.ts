import { z } from 'zod'
import { Problem, StateConflict } from '../../lib/problem.ts'
import { builder } from '../../models/deploy/artifacts.ts'
import { type DeployServerDocument, deployServerResource } from '../../models/deploy/deploy-servers.ts'
import {
  closeDeploySession,
  type DeploySecrets,
  DeployCredentials,
  logInToDeployServer,
  openDeployCredentials,
  rotateDeployCredentials,
} from '../../models/identity/deploy-credentials.ts'
import { mine } from '../../models/resources.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { type Actor, auditing } from '../audit.ts'
import { byId, Id, Timestamp, time } from '../fields.ts'
import { anybody, operation, signedIn } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { path } from './deployments.ts'

const CredentialsView = z
  .strictObject({
    dashboard_url: z.url(),
    api_base_url: z.url().describe('The base URL of the deploy server’s operations'),
    root_login: z.string().describe('The credentials for the dashboard'),
    root_password: z.string(),
    api_token: z.string().describe('A bearer token for the API, and the password for the registry'),
    registry: z.string().describe('Where to push images: `docker push REGISTRY/NAME:TAG`'),
    registry_user: z.string(),
    worker_id: Id.nullable().describe('The machine of the worker that builds'),
    rotated_at: Timestamp,
  })
  .meta({ id: 'DeployServerCredentials' })

const DeployLogin = z
  .strictObject({
    token: z.string().describe('The access token, shown once'),
    token_type: z.literal('Bearer'),
    expires_at: Timestamp,
  })
  .meta({ id: 'DeployServerLogin' })

async function actorAt(id: string): Promise<Actor | null> {
  const found = await DeployCredentials.findById(id).setOptions(everyTenant).lean()
  if (!found) return null
  const { tenant_id, login } = found
  return { tenant_id, actor_id: id, actor_kind: 'deploy_server', actor_name: login }
}

/** The HTTP operations on a deploy server's own credentials. */
export function makeDeployCredentials({ apiUrl }: OperationsContext) {
  const toView = (
    { _id, nodes }: DeployServerDocument,
    { login, password, api_token, rotated_at }: DeploySecrets,
  ): z.output<typeof CredentialsView> => ({
    dashboard_url: `${apiUrl}/deploy/${_id}`,
    api_base_url: `${apiUrl}/api/v1/deploy-servers/${_id}`,
    root_login: login,
    root_password: password,
    api_token,
    registry: `${new URL(apiUrl).host}/${_id.slice(-12)}`,
    registry_user: 'token',
    worker_id: nodes.find(({ name }) => name === builder)?.machine_id ?? null,
    rotated_at: time(rotated_at),
  })

  return [
    operation({
      method: 'GET',
      path: `${path}/credentials`,
      permission: 'deploy_servers:credentials',
      summary: 'Get the addresses, root login and API token of a deploy server (audited)',
      params: byId,
      responses: { 200: CredentialsView },
      reads_secret: true,
      handle: async ({ caller, params }) => {
        const server = await mine(deployServerResource, caller, params.id)
        const secrets = await openDeployCredentials(server)
        if (!secrets) throw new StateConflict('read the credentials', server.status)
        return toView(server, secrets)
      },
    }),

    operation({
      method: 'POST',
      path: `${path}/credentials/rotate`,
      permission: 'deploy_servers:credentials',
      summary: 'Replace the root password and the API token, and end all root logins',
      params: byId,
      responses: { 200: CredentialsView },
      handle: async ({ caller, params }) => {
        const server = await mine(deployServerResource, caller, params.id)
        const secrets = await rotateDeployCredentials(server)
        if (!secrets) throw new StateConflict('rotate the credentials', server.status)
        return toView(server, secrets)
      },
    }),

    operation({
      method: 'POST',
      path: `${path}/login`,
      permission: anybody('logging in is how the dashboard gets a token'),
      summary: 'Log in to a deploy server with its root credentials',
      params: byId,
      body: z.strictObject({
        login: z.string().min(1).max(255),
        password: z.string().min(1).max(1024),
      }),
      responses: { 200: DeployLogin },
      attempts_per_min: 300, // limits load; the model counts guesses
      handle: async ({ params, body, address, http }) => {
        const { token, expires_at } = await auditing(
          { operation: { method: 'POST', path: `${path}/login` }, params, address, http },
          () => actorAt(params.id),
          () => logInToDeployServer(params.id, body, address),
        )
        return { token, token_type: 'Bearer' as const, expires_at: time(expires_at) }
      },
    }),

    operation({
      method: 'POST',
      path: `${path}/logout`,
      permission: signedIn('a root login can end itself'),
      summary: 'End this root login',
      params: byId,
      responses: { 204: null },
      refuses: [403],
      handle: async ({ caller, params }) => {
        await mine(deployServerResource, caller, params.id)
        if (caller.kind !== 'deploy_server')
          throw new Problem(403, 'root_only', 'This operation ends only root logins of the deploy server')
        await closeDeploySession(caller.tenant_id, caller.token)
      },
    }),
  ]
}
