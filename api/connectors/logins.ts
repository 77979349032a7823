import { z } from 'zod'
import { PermissionDenied } from '../../lib/problem.ts'
import { completeAuthorization, startAuthorization } from '../../models/connectors/authorizations.ts'
import { providerNames } from '../../models/connectors/catalogue.ts'
import type { ConnectorDocument } from '../../models/connectors/connectors.ts'
import { pollDeviceLogin, startDeviceLogin } from '../../models/connectors/device.ts'
import { importKey } from '../../models/connectors/imports.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { type Caller, operation } from '../operation.ts'
import { confirmation, ConnectorView, destination, path, toView } from './views.ts'

// The ways to a connector: a key, a login by device code, a login in the browser.

/** 201 for a new connector, 200 for one whose credential was replaced. */
const createdOrReplaced = (connector: ConnectorDocument) =>
  connector.version === 1
    ? { location: `${path}/${connector._id}`, body: toView(connector) }
    : toView(connector)

/** Replacing a credential changes what is there. Throws PermissionDenied. */
function mayReplace({ permissions }: Caller, connectorId: string | null): void {
  if (connectorId !== null && !permissions.has('connectors:update'))
    throw new PermissionDenied('connectors:update')
}

/** Visible ASCII: a header takes nothing else. */
const secret = (most: number) =>
  z.string().regex(new RegExp(String.raw`^[\x21-\x7e]{1,${most}}$`), 'must be a key')
const Scopes = z
  .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,100}$/, 'must be a scope'))
  .min(1)
  .max(50)
  .nullable()
  .default(null)
  .describe('The scopes to ask for; null: those that the platform needs')
const BaseUrl = z.string().max(2048).nullable().default(null)

const importing = operation({
  method: 'POST',
  path: `${path}/import`,
  permission: 'connectors:create',
  summary:
    'Connect with a key or token, which is checked first; `connector_id` replaces the credential of that connector',
  body: z.strictObject({
    provider: z.enum(providerNames),
    api_key: secret(4096)
      .nullable()
      .default(null)
      .describe('The key or token, which is never shown again; null for a server that needs none'),
    base_url: BaseUrl.describe(
      'The URL of the API, if the provider has no fixed one: https, at a public address',
    ),
    header: z
      .string()
      .regex(/^[a-z][a-z0-9-]{0,62}$/, 'must be the name of a header, in lower case')
      .refine((name) => !reserved.has(name), 'is not a header for keys')
      .nullable()
      .default(null)
      .describe('For `openai_compatible`: the header that takes the key, instead of `Authorization: Bearer`'),
    api_version: z
      .string()
      .regex(/^[a-z0-9-]{1,40}$/)
      .nullable()
      .default(null)
      .describe('For `azure_openai`: the version of its API'),
    ...destination,
    confirm_account_change: confirmation,
  }),
  refuses: [404],
  responses: { 200: ConnectorView, 201: ConnectorView },
  handle: async ({ caller, body }) => {
    mayReplace(caller, body.connector_id)
    const { name, connector_id, confirm_account_change, ...key } = body
    const { tenant_id } = caller
    return createdOrReplaced(await importKey({ tenant_id, name, connector_id, confirm_account_change }, key))
  },
})

/** What HTTP itself uses. */
const reserved = new Set(
  'host connection content-length content-type transfer-encoding upgrade te trailer expect cookie'.split(' '),
)

const deviceStart = operation({
  method: 'POST',
  path: `${path}/device/start`,
  permission: 'connectors:create',
  summary: 'Begin a login by device code; show the user the code and the page on which to enter it',
  body: z.strictObject({ provider: z.enum(providerNames), scopes: Scopes, ...destination }),
  refuses: [404],
  responses: {
    200: z
      .strictObject({
        login_id: Id,
        user_code: z.string(),
        verification_url: z.string(),
        verification_url_complete: z.string().nullable().describe('The same page with the code in it'),
        interval_sec: z.number().describe('How often to poll'),
        expires_at: Timestamp,
      })
      .meta({ id: 'DeviceLogin' }),
  },
  handle: async ({ caller, body }) => {
    mayReplace(caller, body.connector_id)
    const { login, ...codes } = await startDeviceLogin(caller, body)
    return {
      login_id: login._id,
      user_code: codes.user_code,
      verification_url: codes.verification_url,
      verification_url_complete: codes.verification_url_complete,
      interval_sec: login.interval_sec,
      expires_at: time(login.expires_at),
    }
  },
})

const devicePoll = operation({
  method: 'POST',
  path: `${path}/device/poll`,
  permission: 'connectors:create',
  summary:
    'Ask whether the user has approved a login by device code; the answer `done` has the connector, once',
  body: z.strictObject({ login_id: Id, confirm_account_change: confirmation }),
  refuses: [404],
  responses: {
    200: z
      .strictObject({
        status: z.enum(['pending', 'done']),
        retry_after_sec: z
          .int()
          .nullable()
          .describe('When to poll again; an earlier poll does not ask the provider'),
        connector: ConnectorView.nullable(),
      })
      .meta({ id: 'DeviceLoginPoll' }),
  },
  handle: async ({ caller, body }) => {
    const { status, retry_after_sec, connector } = await pollDeviceLogin(
      caller,
      body.login_id,
      body.confirm_account_change,
    )
    return { status, retry_after_sec, connector: connector && toView(connector) }
  },
})

const oauthStart = operation({
  method: 'POST',
  path: `${path}/oauth/start`,
  permission: 'connectors:create',
  summary: 'Begin a login in the browser: the user opens the URL and is sent back with a code',
  body: z.strictObject({
    provider: z.enum(providerNames),
    base_url: BaseUrl.describe('The URL of the MCP server: https, at a public address'),
    client_id: secret(512)
      .nullable()
      .default(null)
      .describe('For `mcp`: your own OAuth client, if the server does not register clients'),
    client_secret: secret(1024).nullable().default(null),
    scopes: Scopes,
    ...destination,
  }),
  refuses: [404],
  responses: {
    200: z
      .strictObject({ login_id: Id, authorize_url: z.string(), expires_at: Timestamp })
      .meta({ id: 'OauthLogin' }),
  },
  handle: async ({ caller, body }) => {
    mayReplace(caller, body.connector_id)
    const { client_id, client_secret, ...wish } = body
    const client = client_id === null ? null : { client_id, client_secret }
    const { login, authorize_url } = await startAuthorization(caller, { ...wish, client })
    return { login_id: login._id, authorize_url, expires_at: time(login.expires_at) }
  },
})

const oauthComplete = operation({
  method: 'POST',
  path: `${path}/oauth/complete`,
  permission: 'connectors:create',
  summary: 'Complete a login in the browser: exchange the pasted code for the connector',
  body: z.strictObject({
    login_id: Id.nullable().default(null).describe('Required if the code comes without its state'),
    code: z
      .string()
      .min(1)
      .max(8192)
      .describe('The code, `code#state`, or the whole URL to which the browser was sent'),
    confirm_account_change: confirmation,
  }),
  refuses: [404],
  responses: { 200: ConnectorView, 201: ConnectorView },
  handle: async ({ caller, body: { login_id, code, confirm_account_change } }) =>
    createdOrReplaced(
      await completeAuthorization(caller, { login_id, code, confirmAccountChange: confirm_account_change }),
    ),
})

/** The HTTP operations that make connectors. */
export const connectorLogins = [importing, deviceStart, devicePoll, oauthStart, oauthComplete]
