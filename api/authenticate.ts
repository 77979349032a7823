import type { IncomingMessage } from 'node:http'
import type { Request } from 'express'
import { errors } from 'jose'
import { claimedParty } from '../lib/party-tokens.ts'
import { PermissionDenied, Problem, Unauthenticated } from '../lib/problem.ts'
import { runnerOf } from '../models/ai/runners.ts'
import { Host } from '../models/compute/hosts.ts'
import { spendPartyToken } from '../models/compute/spent-tokens.ts'
import { machineOf } from '../models/identity/access-tokens.ts'
import { deployIdentityOf, deployPermissions, isDeployToken } from '../models/identity/deploy-credentials.ts'
import { identityOf, sessionPrefix } from '../models/identity/session-tokens.ts'
import type { Access, Caller, HostCaller, RunnerCaller } from './operation.ts'

// Longer than any valid token.
const longestToken = 4096

/** The caller. Throws Unauthenticated. Checked for each request, so that a revoked token fails at the next one. */
export async function authenticate(request: IncomingMessage, issuer: string): Promise<Caller> {
  const token = bearer(request)
  if (token.startsWith(sessionPrefix('api'))) return userOf(token)
  return isDeployToken(token) ? deployServerOf(token) : clientOf(token, issuer)
}

async function userOf(token: string): Promise<Caller> {
  const identity = await identityOf(token)
  if (!identity) throw new Unauthenticated('The token is unknown or has expired')
  return {
    kind: 'user',
    id: identity.user_id,
    tenant_id: identity.tenant_id,
    email: identity.email,
    permissions: identity.permissions,
    token,
  }
}

async function deployServerOf(token: string): Promise<Caller> {
  const identity = await deployIdentityOf(token)
  if (!identity) throw new Unauthenticated('The token is unknown, has expired or was replaced')
  return {
    kind: 'deploy_server',
    id: identity.deploy_server_id,
    name: identity.name,
    tenant_id: identity.tenant_id,
    permissions: deployPermissions,
    token,
  }
}

async function clientOf(token: string, issuer: string): Promise<Caller> {
  const machine = await machineOf(token, issuer).catch((cause: unknown) => {
    if (!(cause instanceof errors.JOSEError)) throw cause
    throw Object.assign(new Unauthenticated('The token is not valid'), { cause })
  })
  if (!machine) throw new Unauthenticated('The token was revoked, or its client was deleted')
  const { client, permissions } = machine
  return {
    kind: 'api_client',
    id: client._id,
    name: client.name,
    tenant_id: client.tenant_id,
    permissions,
    token,
  }
}

/** The calling host, by a token that it signed for this one request. Throws Unauthenticated. */
export async function authenticateHost(request: Request): Promise<HostCaller> {
  const token = bearer(request)
  const { kind, id } = claimedParty(token)
  if (kind !== 'host') throw new Unauthenticated('The token is not a host’s')
  const host = await Host.findById(id, { public_key: 1 }).lean()
  const { method, originalUrl: target } = request
  await spendPartyToken(token, { kind, id }, host?.public_key ?? null, { method, target })
  return { kind, id }
}

/** The calling runner, by a token that it signed for this one request. Throws Unauthenticated. */
export async function authenticateRunner(request: Request): Promise<RunnerCaller> {
  const token = bearer(request)
  const { kind, id } = claimedParty(token)
  if (kind !== 'runner') throw new Unauthenticated('The token is not a runner’s')
  const runner = await runnerOf(id)
  const { method, originalUrl: target } = request
  await spendPartyToken(token, { kind, id }, runner?.public_key ?? null, { method, target })
  if (!runner) throw new Unauthenticated('There is no such runner')
  const { tenant_id, workflow_id, version } = runner
  return { kind, id, tenant_id, workflow_id, version }
}

/** Throws PermissionDenied if the caller lacks the permission, and `users_only` if an API client may not call. */
export function authorize(access: Access, caller: Caller): void {
  if (typeof access === 'string' && !caller.permissions.has(access)) throw new PermissionDenied(access)
  if (typeof access === 'object' && access.for === 'users' && caller.kind !== 'user') {
    throw new Problem(403, 'users_only', 'Only users can do this, not API clients or deploy servers')
  }
}

// A browser cannot set headers on a WebSocket, so it sends the token as a subprotocol.
const tokenProtocol = 'bearer.'

/** The subprotocol to answer with: a browser rejects an answer without one that it offered. */
export const bearerProtocol = (offered: Iterable<string>): string | false =>
  [...offered].find((name) => name.startsWith(tokenProtocol)) ?? false

function inProtocol(header = ''): string {
  const offered = header.split(',').map((name) => name.trim())
  return (bearerProtocol(offered) || '').slice(tokenProtocol.length)
}

function bearer({ headers }: IncomingMessage): string {
  const { authorization } = headers
  const token =
    authorization === undefined
      ? inProtocol(headers['sec-websocket-protocol'])
      : /^Bearer +([^\s]+)$/i.exec(authorization)?.[1]
  if (!token) throw new Unauthenticated('Send a token in the header Authorization: Bearer <token>')
  if (token.length > longestToken) throw new Unauthenticated('The token is too long')
  return token
}
