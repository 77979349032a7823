import type { IncomingMessage, ServerResponse } from 'node:http'
import type { WebSocket } from 'ws'
import type { z } from 'zod'
import type { Permission } from '../models/identity/roles.ts'
import type { Lasting } from './caps.ts'

interface Known {
  id: string
  tenant_id: string
  /** The caller's permissions at this moment. */
  permissions: ReadonlySet<Permission>
  token: string
}

/** A user with a session. */
export interface UserCaller extends Known {
  kind: 'user'
  email: string
}

/** An API client with an access token. */
export interface ClientCaller extends Known {
  kind: 'api_client'
  name: string
}

/** The root login or the API token of a deploy server. `id` is the deploy server, which bounds it (api/confined.ts). */
export interface DeployCaller extends Known {
  kind: 'deploy_server'
  name: string
}

/** An authenticated caller, other than a party. */
export type Caller = UserCaller | ClientCaller | DeployCaller

/** A host, authenticated by its key. */
export interface HostCaller {
  kind: 'host'
  id: string
}

/** A runner of an AI workflow, authenticated by its key. */
export interface RunnerCaller {
  kind: 'runner'
  id: string
  tenant_id: string
  workflow_id: string
  version: number
}

/** A caller of the internal API. It acts for the platform, not for a person: it has no permissions, and is not audited. */
export type PartyCaller = HostCaller | RunnerCaller
export const isParty = (caller: Caller | PartyCaller): caller is PartyCaller =>
  caller.kind === 'host' || caller.kind === 'runner'

/** Why an operation needs no permission, and who may call it: anybody, signed-in callers, users, hosts or runners. */
export interface Exemption<For extends 'anybody' | 'signed-in' | 'users' | 'hosts' | 'runners'> {
  for: For
  because: string
}
export const anybody = (because: string): Exemption<'anybody'> => ({ for: 'anybody', because })
export const signedIn = (because: string): Exemption<'signed-in'> => ({ for: 'signed-in', because })
export const usersOnly = (because: string): Exemption<'users'> => ({ for: 'users', because })
export const hostsOnly = (because: string): Exemption<'hosts'> => ({ for: 'hosts', because })
export const runnersOnly = (because: string): Exemption<'runners'> => ({ for: 'runners', because })

export type Access = Permission | Exemption<'anybody' | 'signed-in' | 'users' | 'hosts' | 'runners'>
type CallerFor<A extends Access> =
  A extends Exemption<'anybody'>
    ? null
    : A extends Exemption<'hosts'>
      ? HostCaller
      : A extends Exemption<'runners'>
        ? RunnerCaller
        : A extends Exemption<'users'>
          ? UserCaller
          : Caller

/** 201: the new resource and its location. */
export interface Created<T> {
  location: string
  body: T
}
/** 202: the operation to follow. An undefined body is sent empty. */
export interface AcceptedAnswer<T> {
  operation_id: string
  body: T
}
/** An answer that the handler streams. */
export interface Stream {
  stream: string
  schema: z.ZodType
}
/** Declares a streamed 200 of this media type; `schema` is one piece of it. */
export const stream = (mediaType: string, schema: z.ZodType): Stream => ({ stream: mediaType, schema })

/** A WebSocket instead of an answer. */
export interface Socket {
  socket: string
}
/** Declares a WebSocket and its content. The handler throws, or returns the function to run once the socket is open. */
export const socket = (about: string): Socket => ({ socket: about })

type Success =
  | { 200: z.ZodType; 201: z.ZodType }
  | { 200: z.ZodType; 202: z.ZodType }
  | { 201: z.ZodType; 202: z.ZodType }
  | { 101: Socket }
  | { 200: z.ZodType | Stream }
  | { 201: z.ZodType }
  | { 202: z.ZodType | null }
  | { 204: null }
type AnswerOf<S> = S extends { 200: infer T extends z.ZodType; 201: z.ZodType }
  ? z.output<T> | Created<z.output<T>>
  : S extends { 200: infer T extends z.ZodType; 202: z.ZodType }
    ? z.output<T> | AcceptedAnswer<z.output<T>>
    : S extends { 201: infer T extends z.ZodType; 202: z.ZodType }
      ? Created<z.output<T>> | AcceptedAnswer<z.output<T>>
      : S extends { 101: Socket }
        ? (client: WebSocket) => void
        : S extends { 200: infer T }
          ? T extends z.ZodType
            ? z.output<T>
            : void
          : S extends { 201: infer T extends z.ZodType }
            ? Created<z.output<T>>
            : S extends { 202: infer T }
              ? AcceptedAnswer<T extends z.ZodType ? z.output<T> : undefined>
              : void

type Parsed<T> = T extends z.ZodType ? z.output<T> : undefined

export interface Declaration<
  A extends Access,
  P extends z.ZodType | undefined,
  Q extends z.ZodType | undefined,
  B extends z.ZodType | undefined,
  S extends Success,
> {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** With `{name}` for parameters. */
  path: string
  permission: A
  summary: string
  params?: P | undefined
  query?: Q | undefined
  body?: B | undefined
  /** A body for the document and its reference, unless `api/document/examples.ts` has one. */
  example?: B extends z.ZodType ? z.input<B> : undefined
  /** Its area of the document, unless `api/document/areas.ts` has the path. */
  area?: string
  responses: S
  /** The body is a form, as OAuth requires; unknown fields are ignored. */
  form?: true
  /** Further media types accepted for the JSON body. */
  media_types?: string[]
  /** The body is bytes of this type instead of JSON, with a separate size limit. */
  bytes?: { media_type: string; at_most_kib: number }
  /** The size limit of the JSON body, where the usual one is too small. */
  json_kib?: number
  /** Further refusal statuses, beyond those that follow from the declaration. */
  refuses?: (403 | 404 | 502 | 504)[]
  /** The body of 400 and 401, if a standard defines one. */
  refusal?: z.ZodType
  /**
   * The resource has a `revision`. Answers with it carry it as ETag, and a change may name by If-Match the revisions on
   * which it is based.
   */
  revised?: true
  /** The answer to this GET contains a secret: it is audited like a change. */
  reads_secret?: true
  /** A separate limit per minute and address, for operations that invite guessing. */
  attempts_per_min?: number
  /** It takes no Idempotency-Key: its work cannot be a part of a transaction that may run again. */
  takes_no_key?: true
  /** As what a request counts among those that its tenant may have open at once. Default: by the answer, a socket or a stream. */
  lasts?: Lasting
  /**
   * Runs after `handle`, and gives the answer instead of it. What it waits for may depend on what `handle` has committed: with
   * an Idempotency-Key, that is a transaction. It ends when the caller loses the right to call.
   */
  awaits?(
    answer: Exclude<AnswerOf<S>, void>,
    request: { caller: CallerFor<A>; query: Parsed<Q>; response: ServerResponse },
  ): Promise<AnswerOf<S>>
  /** Bodies that this limit does not count, so that others at the same address cannot use it up. */
  spares?: (body: Parsed<B>) => Promise<boolean>
  handle(request: {
    caller: CallerFor<A>
    params: Parsed<P>
    query: Parsed<Q>
    body: Parsed<B>
    address: string
    /** Of If-Match, if the operation is `revised`. Null: any. */
    revisions: number[] | null
    http: { request: IncomingMessage; response: ServerResponse }
  }): Promise<AnswerOf<S>>
}

/** One HTTP operation as the router, the OpenAPI document and the tests use it. */
export type Operation = Declaration<
  Access,
  z.ZodType | undefined,
  z.ZodType | undefined,
  z.ZodType | undefined,
  Success
>

/** Declares one HTTP operation: its route, document, permission check and tests derive from this value. */
export function operation<
  const A extends Access,
  S extends Success,
  P extends z.ZodType | undefined = undefined,
  Q extends z.ZodType | undefined = undefined,
  B extends z.ZodType | undefined = undefined,
>(declaration: Declaration<A, P, Q, B, S>): Operation {
  return declaration
}

/** Operations of one area of the document. */
export const inArea = (area: string, operations: Operation[]): Operation[] =>
  operations.map((one) => ({ ...one, area }))

/** The status of an answer. Only an operation that declares two has a choice. */
export const statusOf = ({ responses }: Operation, answer: unknown) => {
  const has = (field: string): boolean =>
    typeof answer === 'object' && answer !== null && field in answer && 'body' in answer
  if (202 in responses && has('operation_id')) return 202
  return 201 in responses && has('location') ? 201 : successOf({ responses }).status
}

/** The operation's success status and its body: the first, if it declares two. */
export function successOf({ responses }: Pick<Operation, 'responses'>): {
  status: 101 | 200 | 201 | 202 | 204
  body: z.ZodType | Stream | Socket | null
} {
  const [[status, body]] = Object.entries(responses) as [[string, z.ZodType | Stream | Socket | null]]
  return { status: Number(status) as 101 | 200 | 201 | 202 | 204, body }
}

type Body = ReturnType<typeof successOf>['body']
export const isStream = (body: Body): body is Stream => body !== null && 'stream' in body
export const isSocket = (body: Body): body is Socket => body !== null && 'socket' in body
