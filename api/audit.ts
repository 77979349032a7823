import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Logger } from '../lib/log.ts'
import { Problem } from '../lib/problem.ts'
import { type AuditEventDocument, storeAuditEvent } from '../models/identity/audit.ts'
import { findByEmail } from '../models/identity/users.ts'
import {
  type AcceptedAnswer,
  type Caller,
  type Created,
  isSocket,
  type Operation,
  successOf,
} from './operation.ts'

/** The actor of an event. */
export type Actor = Pick<AuditEventDocument, 'tenant_id' | 'actor_id' | 'actor_kind' | 'actor_name'>

/** Audits every change, every read of a secret, and every WebSocket, since it takes input. */
export const isAudited = (operation: Operation): boolean =>
  operation.method !== 'GET' || operation.reads_secret === true || isSocket(successOf(operation).body)

export const actorOf = (caller: Caller): Actor => ({
  tenant_id: caller.tenant_id,
  actor_id: caller.id,
  actor_kind: caller.kind,
  actor_name: caller.kind === 'user' ? caller.email : caller.name,
})

export interface Attempt {
  actor: Actor
  operation: Pick<Operation, 'method' | 'path'>
  request: IncomingMessage & { originalUrl?: string }
  response: ServerResponse
  address: string
  /** The path's parameters. */
  params?: Record<string, unknown>
}

/** The outcome: the status, and the answer or the problem. */
export interface End {
  status: number
  answer?: unknown
  problem?: Problem
}

let log: Logger | undefined

/** Sets the log for events that could not be stored. `serve` calls it once. */
export function useAuditLog(logger: Logger): void {
  log = logger
}

/**
 * Stores the event of one attempt. If that fails, logs the event and resolves: the work is done, and the caller gets
 * the answer.
 */
export async function audit(attempt: Attempt, end: End): Promise<void> {
  const event = eventOf(attempt, end)
  try {
    await storeAuditEvent(event)
  } catch (error) {
    log?.error({ err: error, event }, 'audit event not stored')
  }
}

/**
 * Audits an operation that the router cannot, because it identifies the caller itself: a login or a token request.
 * `findActor` returns null if the actor does not exist. The event of a failure is stored after the answer, so that the
 * response time does not show who exists.
 */
export async function auditing<T>(
  attempt: Pick<Attempt, 'operation' | 'address' | 'params'> & {
    http: Pick<Attempt, 'request' | 'response'>
  },
  findActor: () => Promise<Actor | null>,
  work: () => Promise<T>,
): Promise<T> {
  const { http, ...rest } = attempt
  const end = async (how: End): Promise<void> => {
    const actor = await findActor().catch(() => null)
    if (actor) await audit({ actor, ...rest, ...http }, how)
  }
  try {
    const done = await work()
    await end({ status: 200 })
    return done
  } catch (problem) {
    if (problem instanceof Problem)
      http.response.once('finish', () => void end({ status: problem.status, problem }))
    throw problem
  }
}

/** The user with this e-mail address. */
export async function userWith(email: string): Promise<Actor | null> {
  const user = await findByEmail(email)
  if (!user) return null
  return { tenant_id: user.tenant_id, actor_id: user._id, actor_kind: 'user', actor_name: user.email }
}

function eventOf(
  { actor, operation, request, response, address, params = {} }: Attempt,
  { status, answer, problem }: End,
): Omit<AuditEventDocument, '_id'> {
  return {
    ...actor,
    time: new Date(),
    action: `${operation.method} ${operation.path}`,
    resource_kind: resourceKindOf(operation.path),
    resource_id: resourceIdOf(operation.path, params, status, answer),
    path: ((request.originalUrl ?? request.url ?? '').split('?', 1)[0] ?? '').slice(0, 1024),
    address,
    user_agent: (request.headers['user-agent'] ?? '').slice(0, 256),
    status,
    outcome: status < 400 ? 'succeeded' : status < 500 ? 'refused' : 'failed',
    problem_code: problem?.code ?? null,
    request_id: String(response.getHeader('X-Request-Id')),
  }
}

/** `/api/v1/containers/{id}/start` → `container`; `/api/v1/account/password` → `account` */
export function resourceKindOf(path: string): string {
  const [, parent] = /^.*\/([^/{}]+)\/\{\w+\}/.exec(path) ?? []
  const [, collection] = /^\/(?:api\/v1\/)?(?:platform\/)?([^/]+)/.exec(path) ?? []
  return (parent ?? collection ?? path).replace(/s$/, '').replaceAll('-', '_')
}

/** The last parameter of the path, or the id of the created resource. */
function resourceIdOf(
  path: string,
  params: Record<string, unknown>,
  status: number,
  answer: unknown,
): string | null {
  const [, name] = /^.*\{(\w+)\}/.exec(path) ?? []
  if (name !== undefined) return typeof params[name] === 'string' ? params[name].slice(0, 256) : null
  if (status === 201) return (answer as Created<unknown>).location.split('/').at(-1) ?? null
  if (status === 202) return (answer as AcceptedAnswer<{ id?: string } | undefined>).body?.id ?? null
  return null
}
