import type { IncomingMessage, ServerResponse } from 'node:http'
import type { WebSocket } from 'ws'
import type { z } from 'zod'
import type { Permission } from '../models/identity/roles.ts'

interface Known {
  id: string
  tenant_id: string
  /** What he may do at this moment. */
  permissions: ReadonlySet<Permission>
  token: string
}

/** A person, by his session. */
export interface UserCaller extends Known {
  kind: 'user'
  email: string
}

/** A machine, by an access token. */
export interface ClientCaller extends Known {
  kind: 'api_client'
  name: string
}

/** Who is calling. */
export type Caller = UserCaller | ClientCaller

/** A host, by its own key. */
export interface HostCaller {
  kind: 'host'
  id: string
}

/** Why an operation needs no permission: nobody has signed in yet, anybody signed in may, each user may, or only hosts. */
export interface Exemption<For extends 'anybody' | 'signed-in' | 'users' | 'hosts'> {
  for: For
  because: string
}
export const anybody = (because: string): Exemption<'anybody'> => ({ for: 'anybody', because })
export const signedIn = (because: string): Exemption<'signed-in'> => ({ for: 'signed-in', because })
export const usersOnly = (because: string): Exemption<'users'> => ({ for: 'users', because })
export const hostsOnly = (because: string): Exemption<'hosts'> => ({ for: 'hosts', because })

export type Access = Permission | Exemption<'anybody' | 'signed-in' | 'users' | 'hosts'>
type CallerFor<A extends Access> =
  A extends Exemption<'anybody'>
    ? null
    : A extends Exemption<'hosts'>
      ? HostCaller
      : A extends Exemption<'users'>
        ? UserCaller
        : Caller

/** 201: where the new thing is. */
export interface Created<T> {
  location: string
  body: T
}
/** 202: the operation to follow; an undefined body is an empty one. */
export interface AcceptedAnswer<T> {
  operation_id: string
  body: T
}
/** An answer that the handler writes itself, piece by piece. */
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
/** Declares a WebSocket, and what passes through it. The handler refuses, or returns what is done once it is open. */
export const socket = (about: string): Socket => ({ socket: about })

type Success =
  | { 101: Socket }
  | { 200: z.ZodType | Stream }
  | { 201: z.ZodType }
  | { 202: z.ZodType | null }
  | { 204: null }
type AnswerOf<S> = S extends { 101: Socket }
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
  responses: S
  /** The body is a form, as OAuth has it, and fields that are not known are passed over. */
  form?: true
  /** Under which media types the JSON body may come as well. */
  media_types?: string[]
  /** The body is no JSON but bytes of this type, with a limit of their own. */
  bytes?: { media_type: string; at_most_kib: number }
  /** Statuses of its own refusals, where those that follow from the rest are not all. */
  refuses?: (403 | 404)[]
  /** How 400 and 401 are said where a standard has a form of its own for it. */
  refusal?: z.ZodType
  /** A GET whose answer has a secret in it: it is audited as changes are. */
  reads_secret?: true
  /** A limit of its own, per minute and address, for what invites guessing. */
  attempts_per_min?: number
  handle(request: {
    caller: CallerFor<A>
    params: Parsed<P>
    query: Parsed<Q>
    body: Parsed<B>
    address: string
    http: { request: IncomingMessage; response: ServerResponse }
  }): Promise<AnswerOf<S>>
}

/** One HTTP operation as the router, the document and the tests see it. */
export type Operation = Declaration<
  Access,
  z.ZodType | undefined,
  z.ZodType | undefined,
  z.ZodType | undefined,
  Success
>

/** Declares one HTTP operation. All that the platform knows of it comes from this value. */
export function operation<
  const A extends Access,
  S extends Success,
  P extends z.ZodType | undefined = undefined,
  Q extends z.ZodType | undefined = undefined,
  B extends z.ZodType | undefined = undefined,
>(declaration: Declaration<A, P, Q, B, S>): Operation {
  return declaration
}

/** The one status that says yes, and what comes with it. */
export function successOf({ responses }: Operation): {
  status: 101 | 200 | 201 | 202 | 204
  body: z.ZodType | Stream | Socket | null
} {
  const [[status, body]] = Object.entries(responses) as [[string, z.ZodType | Stream | Socket | null]]
  return { status: Number(status) as 101 | 200 | 201 | 202 | 204, body }
}

type Body = ReturnType<typeof successOf>['body']
export const isStream = (body: Body): body is Stream => body !== null && 'stream' in body
export const isSocket = (body: Body): body is Socket => body !== null && 'socket' in body
