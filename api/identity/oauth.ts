import type { IncomingMessage } from 'node:http'
import { z } from 'zod'
import { TokenRefused } from '../../lib/problem.ts'
import { accessTokenSec, issueAccessToken } from '../../models/identity/access-tokens.ts'
import {
  type ApiClientDocument,
  findByClientId,
  findByCredentials,
  noteUse,
} from '../../models/identity/api-clients.ts'
import { attemptFrom } from '../../models/identity/attempts.ts'
import { tenantPermissions } from '../../models/identity/roles.ts'
import {
  publicKeys,
  rotateSigningKey,
  SigningKey,
  type SigningKeyDocument,
} from '../../models/identity/signing-keys.ts'
import { type Actor, auditing } from '../audit.ts'
import { Id, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { anybody, type Operation, operation } from '../operation.ts'

// Tokens for API clients: RFC 6749 client credentials, and RFC 8414 metadata.

const tokenPath = '/oauth/token'

const TokenRequest = z.object({
  grant_type: z.string().max(100),
  scope: z
    .string()
    .max(10_000)
    .optional()
    .describe('Scopes, separated by spaces; default: all scopes of the client'),
  client_id: z.string().max(100).optional(),
  client_secret: z.string().max(1000).optional(),
})
const Token = z
  .strictObject({
    access_token: z.string(),
    token_type: z.literal('Bearer'),
    expires_in: z.int().describe('Seconds until the token expires'),
    scope: z.string(),
  })
  .meta({ id: 'AccessToken' })

const Refusal = z
  .strictObject({
    error: z.enum(['invalid_request', 'invalid_client', 'invalid_scope', 'unsupported_grant_type']),
    error_description: z.string(),
  })
  .meta({ id: 'TokenRefusal' })

const SigningKeyView = z
  .strictObject({
    id: Id,
    generation: z.int(),
    signs_from: Timestamp,
    expires_at: Timestamp.nullable().describe(
      'When tokens signed with this key stop being accepted; null for the newest key',
    ),
    created_at: Timestamp,
  })
  .meta({ id: 'SigningKey' })
const toView = (key: SigningKeyDocument): z.output<typeof SigningKeyView> => ({
  id: key._id,
  generation: key.generation,
  signs_from: time(key.signs_from),
  expires_at: timeOrNull(key.expires_at),
  created_at: time(key.created_at),
})

/** `apiUrl` is the API's public URL, and the tokens' issuer and audience. */
export const makeOauth = ({ apiUrl }: { apiUrl: string }): Operation[] => [
  operation({
    method: 'POST',
    path: tokenPath,
    permission: anybody('a client authenticates with its secret here'),
    summary: 'Get an access token for an API client',
    form: true,
    body: TokenRequest,
    refusal: Refusal,
    responses: { 200: Token },
    handle: async ({ body, address, http }) => {
      http.response.setHeader('Cache-Control', 'no-store')
      const [id, secret] = credentialsOf(http.request, body)
      if (body.grant_type !== 'client_credentials') {
        throw new TokenRefused('unsupported_grant_type', 'Only client_credentials is supported')
      }
      const { client, scopes } = await auditing(
        { operation: { method: 'POST', path: tokenPath }, address, http },
        () => actorWith(id),
        async () => {
          const found = await attemptFrom(address, () => clientWith(id, secret))
          return { client: found, scopes: scopesAsked(found, body.scope) }
        },
      )
      noteUse(client)
      return {
        access_token: await issueAccessToken(client, scopes, apiUrl),
        token_type: 'Bearer' as const,
        expires_in: accessTokenSec,
        scope: scopes.join(' '),
      }
    },
  }),

  operation({
    method: 'GET',
    path: '/.well-known/jwks.json',
    permission: anybody('public keys are public'),
    summary: 'Get the public keys that verify access tokens',
    responses: { 200: z.looseObject({ keys: z.array(z.record(z.string(), z.unknown())) }) },
    handle: publicKeys,
  }),

  operation({
    method: 'GET',
    path: '/.well-known/oauth-authorization-server',
    permission: anybody('clients discover the token endpoint here'),
    summary: 'Get the OAuth server metadata (RFC 8414)',
    responses: { 200: z.looseObject({ issuer: z.url(), token_endpoint: z.url(), jwks_uri: z.url() }) },
    handle: async () => ({
      issuer: apiUrl,
      token_endpoint: `${apiUrl}/oauth/token`,
      jwks_uri: `${apiUrl}/.well-known/jwks.json`,
      grant_types_supported: ['client_credentials'],
      response_types_supported: [],
      token_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post'],
      scopes_supported: tenantPermissions,
    }),
  }),

  list({
    path: '/api/v1/platform/signing-keys',
    permission: 'platform:operations',
    summary: 'List the keys that sign access tokens',
    model: SigningKey,
    view: SigningKeyView,
    toView,
    scope: () => ({}), // the platform’s keys, of no tenant
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/signing-keys/rotate',
    permission: 'platform:operations',
    summary: 'Rotate the signing key; existing tokens stay valid until they expire',
    responses: { 201: SigningKeyView },
    handle: async () => ({
      location: '/api/v1/platform/signing-keys',
      body: toView(await rotateSigningKey()),
    }),
  }),
]

async function clientWith(id: string, secret: string): Promise<ApiClientDocument> {
  const client = await findByCredentials(id, secret)
  if (client) return client
  throw new TokenRefused('invalid_client', 'The client is unknown, has expired, or the secret is wrong')
}

/** The requested scopes; by default all of the client's. Throws if the client lacks one of them. */
function scopesAsked(client: ApiClientDocument, scope = ''): string[] {
  const asked = [...new Set(scope.split(' ').filter(Boolean))]
  if (asked.every((one) => client.scopes.includes(one))) return asked.length ? asked : client.scopes
  throw new TokenRefused('invalid_scope', 'The client does not hold every requested scope')
}

async function actorWith(client_id: string): Promise<Actor | null> {
  const client = await findByClientId(client_id)
  if (!client) return null
  const { tenant_id, _id: actor_id, name: actor_name } = client
  return { tenant_id, actor_id, actor_kind: 'api_client', actor_name }
}

/** The credentials from HTTP Basic, each part form-encoded (RFC 6749, 2.3.1), or from the body; never both. */
function credentialsOf(
  { headers: { authorization } }: IncomingMessage,
  { client_id, client_secret }: z.output<typeof TokenRequest>,
): [id: string, secret: string] {
  if (authorization === undefined) {
    if (client_id && client_secret) return [client_id, client_secret]
    throw new TokenRefused(
      'invalid_client',
      'Send the client’s id and secret as HTTP basic credentials or in the form',
    )
  }
  if (client_secret !== undefined)
    throw new TokenRefused('invalid_request', 'Send the secret either in the header or in the form, not both')
  const [, encoded = ''] = /^Basic +([A-Za-z0-9+/=_-]{1,4096})$/i.exec(authorization) ?? []
  const [, id, secret] = /^([^:]+):(.+)$/s.exec(Buffer.from(encoded, 'base64').toString()) ?? []
  if (!id || !secret)
    throw new TokenRefused('invalid_client', 'HTTP basic credentials need the client’s id and secret')
  return [decodeForm(id), decodeForm(secret)]
}

function decodeForm(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    throw new TokenRefused('invalid_client', 'The credentials are not form-encoded')
  }
}
