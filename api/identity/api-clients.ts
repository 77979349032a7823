import { z } from 'zod'
import {
  ApiClient,
  type ApiClientDocument,
  changeApiClient,
  createApiClient,
  deleteApiClient,
  findApiClient,
  revokeTokens,
  rotateSecret,
} from '../../models/identity/api-clients.ts'
import { tenantPermissions } from '../../models/identity/roles.ts'
import { byId, Id, Name, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { type Operation, operation } from '../operation.ts'

const Scope = z.enum(tenantPermissions).meta({ id: 'Scope', description: '`<resource>:<action>`' })
const Scopes = z.array(Scope).min(1).max(tenantPermissions.length)
const Description = z.string().max(1000)

const view = {
  id: Id,
  tenant_id: Id,
  name: z.string(),
  description: z.string(),
  client_id: z.string(),
  secret_hint: z.string().describe('The last four characters of the secret'),
  scopes: z.array(z.string()),
  expires_at: Timestamp.nullable().describe('When the API client expires; null: never'),
  last_used_at: Timestamp.nullable().describe('When the client was last used, accurate to the minute'),
  created_at: Timestamp,
  updated_at: Timestamp,
}
const ApiClientView = z.strictObject(view).meta({ id: 'ApiClient' })
const WithSecret = z
  .strictObject({
    ...view,
    client_secret: z.string().describe('The secret, shown once'),
    token_endpoint: z.url(),
  })
  .meta({ id: 'ApiClientWithSecret' })

const toView = (client: ApiClientDocument): z.output<typeof ApiClientView> => ({
  id: client._id,
  tenant_id: client.tenant_id,
  name: client.name,
  description: client.description,
  client_id: client.client_id,
  secret_hint: client.secret_hint,
  scopes: client.scopes,
  expires_at: timeOrNull(client.expires_at),
  last_used_at: timeOrNull(client.last_used_at),
  created_at: time(client.created_at),
  updated_at: time(client.updated_at),
})

const dayMs = 86_400_000
const ScopeGroup = z.strictObject({
  resource: z.string(),
  scopes: z.array(z.strictObject({ scope: z.string(), action: z.string() })),
})

/** `apiUrl` is the API's public URL. */
export function makeApiClients({ apiUrl }: { apiUrl: string }): Operation[] {
  const withSecret = (client: ApiClientDocument, client_secret: string): z.output<typeof WithSecret> => ({
    ...toView(client),
    client_secret,
    token_endpoint: `${apiUrl}/oauth/token`,
  })

  return [
    list({
      path: '/api/v1/api-clients',
      permission: 'api_clients:read',
      summary: 'List API clients',
      model: ApiClient,
      view: ApiClientView,
      toView,
      scope: (caller) => ({ tenant_id: caller.tenant_id }),
    }),

    operation({
      method: 'POST',
      path: '/api/v1/api-clients',
      permission: 'api_clients:create',
      summary: 'Create an API client; the caller must hold every scope they grant',
      body: z.strictObject({
        name: Name,
        scopes: Scopes,
        description: Description.default(''),
        expires_in_days: z.int().min(1).max(3650).optional(),
      }),
      responses: { 201: WithSecret },
      handle: async ({ caller, body: { expires_in_days: days, ...fields } }) => {
        const expires_at = days === undefined ? null : new Date(Date.now() + days * dayMs)
        const { client, secret } = await createApiClient(caller, { ...fields, expires_at })
        return { location: `/api/v1/api-clients/${client._id}`, body: withSecret(client, secret) }
      },
    }),

    operation({
      method: 'GET',
      path: '/api/v1/api-clients/scopes',
      permission: 'api_clients:read',
      summary: 'List the scopes that the caller can grant, by resource',
      responses: { 200: z.strictObject({ groups: z.array(ScopeGroup) }) },
      handle: async ({ caller }) => {
        const mine = tenantPermissions.filter((scope) => caller.permissions.has(scope))
        const groups = Map.groupBy(mine, (scope) => scope.split(':', 1)[0] ?? '')
        return {
          groups: [...groups].map(([resource, scopes]) => ({
            resource,
            scopes: scopes.map((scope) => ({ scope, action: scope.slice(resource.length + 1) })),
          })),
        }
      },
    }),

    operation({
      method: 'GET',
      path: '/api/v1/api-clients/{id}',
      permission: 'api_clients:read',
      summary: 'Get an API client',
      params: byId,
      responses: { 200: ApiClientView },
      handle: async ({ caller, params }) => toView(await findApiClient(caller.tenant_id, params.id)),
    }),

    operation({
      method: 'PATCH',
      path: '/api/v1/api-clients/{id}',
      permission: 'api_clients:update',
      summary: 'Update an API client; a removed scope stops working on the next request',
      params: byId,
      body: z.strictObject({
        name: Name.optional(),
        description: Description.optional(),
        scopes: Scopes.optional(),
        expires_at: Timestamp.nullable().optional(),
      }),
      responses: { 200: ApiClientView },
      handle: async ({ caller, params, body: { expires_at, ...changes } }) => {
        const given = Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== undefined))
        const until =
          expires_at === undefined ? {} : { expires_at: expires_at === null ? null : new Date(expires_at) }
        return toView(await changeApiClient(caller, params.id, { ...given, ...until }))
      },
    }),

    operation({
      method: 'POST',
      path: '/api/v1/api-clients/{id}/rotate',
      permission: 'api_clients:update',
      summary: 'Rotate the secret; the old one stops working at once, issued tokens stay valid',
      params: byId,
      responses: { 200: WithSecret },
      handle: async ({ caller, params }) => {
        const { client, secret } = await rotateSecret(caller, params.id)
        return withSecret(client, secret)
      },
    }),

    operation({
      method: 'POST',
      path: '/api/v1/api-clients/{id}/revoke-tokens',
      permission: 'api_clients:update',
      summary: 'Revoke all tokens issued to an API client so far; they stop working on the next request',
      params: byId,
      responses: { 200: ApiClientView },
      handle: async ({ caller, params }) => toView(await revokeTokens(caller.tenant_id, params.id)),
    }),

    operation({
      method: 'DELETE',
      path: '/api/v1/api-clients/{id}',
      permission: 'api_clients:delete',
      summary: 'Delete an API client; its tokens stop working on the next request',
      params: byId,
      responses: { 204: null },
      handle: async ({ caller, params }) => deleteApiClient(caller.tenant_id, params.id),
    }),
  ]
}
