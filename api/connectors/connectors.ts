import { z } from 'zod'
import {
  connectorKinds,
  type ProviderName,
  providerNames,
  providerOf,
} from '../../models/connectors/catalogue.ts'
import { Connector, connectorOf } from '../../models/connectors/connectors.ts'
import { deleteConnector } from '../../models/connectors/deletion.ts'
import { makeDefault, renameConnector } from '../../models/connectors/keep.ts'
import { offersLogin, usualBaseUrl } from '../../models/connectors/providers.ts'
import { checkConnector } from '../../models/connectors/renewals.ts'
import { activityList } from '../activity.ts'
import { byId, forced, Id, Name } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { ConnectorView, path, toView } from './views.ts'

const ProviderView = z
  .strictObject({
    provider: z.enum(providerNames),
    title: z.string(),
    serves: z.enum(['git', 'models', 'tools']),
    kinds: z.array(z.enum(connectorKinds)).describe('How a tenant can connect here'),
    base_url: z.string().nullable().describe('The URL of the API; null: each connector has its own'),
    own_base_url: z.boolean().describe('Whether a connector may name another URL'),
    scopes: z.array(z.string()).describe('The scopes that a login asks for by default'),
  })
  .meta({ id: 'ConnectorProvider' })

const showProvider = (provider: ProviderName): z.output<typeof ProviderView> => {
  const { title, serves, kinds, own_base_url, logins } = providerOf(provider)
  const isOffered = (kind: (typeof kinds)[number]): boolean =>
    kind === 'oauth' || kind === 'device' ? offersLogin(provider, kind) : true
  return {
    provider,
    title,
    serves,
    kinds: kinds.filter(isOffered),
    base_url: usualBaseUrl(provider),
    own_base_url,
    scopes: [...(logins?.scopes ?? [])],
  }
}

/** The HTTP operations on connectors as records. Those that make them are in logins.ts. */
export const connectors = [
  list({
    path,
    permission: 'connectors:read',
    summary: 'List the connectors of the tenant, without their secrets',
    model: Connector,
    view: ConnectorView,
    toView,
    scope: ({ tenant_id }) => ({ tenant_id }),
  }),

  operation({
    method: 'GET',
    path: `${path}/providers`,
    permission: 'connectors:read',
    summary: 'List the providers, and how a tenant can connect to each',
    responses: { 200: z.strictObject({ items: z.array(ProviderView) }) },
    handle: () => Promise.resolve({ items: providerNames.map(showProvider) }),
  }),

  operation({
    method: 'GET',
    path: `${path}/{id}`,
    permission: 'connectors:read',
    summary: 'Get a connector, without its secret',
    params: byId,
    responses: { 200: ConnectorView },
    handle: async ({ caller, params }) => toView(await connectorOf(caller, params.id)),
  }),

  activityList({
    path: `${path}/{id}/activity`,
    permission: 'connectors:read',
    summary: 'List the times when a connector had to be connected again',
    ownerOf: connectorOf,
  }),

  operation({
    method: 'PATCH',
    path: `${path}/{id}`,
    permission: 'connectors:update',
    summary: 'Rename a connector',
    params: byId,
    body: z.strictObject({ name: Name }),
    responses: { 200: ConnectorView },
    handle: async ({ caller, params, body }) =>
      toView(await renameConnector(await connectorOf(caller, params.id), body.name)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{id}/default`,
    permission: 'connectors:update',
    summary: 'Make a connector the default for its provider',
    params: byId,
    responses: { 200: ConnectorView },
    handle: async ({ caller, params }) => toView(await makeDefault(await connectorOf(caller, params.id))),
  }),

  operation({
    method: 'POST',
    path: `${path}/{id}/check`,
    permission: 'connectors:update',
    summary: 'Ask the provider whether it accepts the credential; `status` has the result',
    params: byId,
    responses: { 200: ConnectorView },
    handle: async ({ caller, params }) => toView(await checkConnector(await connectorOf(caller, params.id))),
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{id}`,
    permission: 'connectors:delete',
    summary: 'Delete a connector that nothing uses, and revoke its credential where the provider can',
    params: byId,
    query: forced,
    responses: {
      200: z
        .strictObject({
          id: Id,
          revoked: z.boolean().describe('Whether the provider has revoked the credential'),
          reason: z.string().nullable().describe('Why the provider has not revoked it'),
        })
        .meta({ id: 'ConnectorDeletion' }),
    },
    handle: async ({ caller, params, query }) => {
      const { revoked, reason } = await deleteConnector(await connectorOf(caller, params.id), query)
      return { id: params.id, revoked, reason }
    },
  }),
]
