import type { ErrorRequestHandler } from 'express'
import mongoose from 'mongoose'
import { z } from 'zod'
import type { Logger } from '../lib/log.ts'
import { type InputError, InvalidInput, Problem, Unavailable } from '../lib/problem.ts'
import { DatabaseAway } from '../models/database-away.ts'
import { wordsFor } from './words.ts'

/** The OpenAPI schema of every error response. */
export const ProblemView = z
  .looseObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    code: z.string().describe('Stable machine-readable code'),
    detail: z.string().optional(),
    request_id: z.string().optional(),
    errors: z
      .array(
        z.object({
          pointer: z.string(),
          message: z.string(),
          line: z.int().optional(),
          code: z.string().optional(),
        }),
      )
      .optional(),
  })
  .meta({ id: 'Problem' })

/**
 * Parses, or throws InvalidInput with a pointer to each mistake. `fixed`: fields of the resource that the body does not
 * have, because they cannot be changed.
 */
export function parse<T extends z.ZodType>(
  schema: T,
  input: unknown,
  status: 400 | 422,
  fixed: string[] = [],
): z.output<T> {
  const parsed = schema.safeParse(input, { error: wordsFor })
  if (!parsed.success)
    throw new InvalidInput(
      status,
      parsed.error.issues.flatMap((issue) => mistakesOf(issue, input, status, fixed)),
    )
  const dropped = droppedNames(input, parsed.data)
  if (dropped.length)
    throw new InvalidInput(
      status,
      dropped.map((path) => ({ pointer: pointer(path), message: 'is not a name that is allowed here' })),
    )
  return parsed.data
}

function mistakesOf(
  issue: z.core.$ZodIssue,
  input: unknown,
  status: 400 | 422,
  fixed: string[],
): InputError[] {
  const { code, path, message } = issue
  if (code === 'unrecognized_keys')
    return issue.keys.map((key) => ({
      pointer: pointer([...path, key]),
      message: path.length === 0 && fixed.includes(key) ? 'cannot be changed' : 'is not a known field',
    }))
  const given =
    path.length === 1 ? (input as Record<PropertyKey, unknown>)[path[0] as PropertyKey] : undefined
  const isRepeated =
    status === 400 && Array.isArray(given) && (code === 'invalid_type' || code === 'invalid_value')
  return [{ pointer: pointer(path), message: isRepeated ? `is given ${times(given.length)}` : message }]
}

const times = (count: number): string => (count === 2 ? 'twice' : `${count} times`)

/** Fields named `__proto__`, which a schema of names leaves out without a word. */
function droppedNames(input: unknown, output: unknown, path: PropertyKey[] = []): PropertyKey[][] {
  if (input === output || !isPlain(input) || !isPlain(output)) return []
  const own = Object.hasOwn(input, '__proto__') && !Object.hasOwn(output, '__proto__')
  const below = Object.keys(output).flatMap((key) => droppedNames(input[key], output[key], [...path, key]))
  return own ? [[...path, '__proto__'], ...below] : below
}

const isPlain = (value: unknown): value is Record<PropertyKey, unknown> =>
  Array.isArray(value) ||
  (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype)

/** RFC 6901. */
const pointer = (path: PropertyKey[]): string =>
  path.map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')

/** The last handler: turns every error into a problem document. An unexpected error reveals no details. */
export const problemHandler =
  (log: Logger): ErrorRequestHandler =>
  (error, request, response, _next) => {
    const problem = toProblem(error)
    // 502 and 504 are about a server of the tenant's, and the problem says how it failed.
    if (problem.status >= 500 && ![502, 504].includes(problem.status))
      log.error({ err: error, method: request.method, path: request.path }, 'request failed')
    if (response.headersSent) {
      response.destroy()
      return
    }
    response
      .status(problem.status)
      .set(problem.headers)
      .type(problem.mediaType)
      .send(JSON.stringify(problem.answer(response.locals['requestId'] as string | undefined)))
  }

const maxTimeExpired = 50

export class DatabaseUnavailable extends Unavailable {
  constructor(cause: unknown) {
    super('The database does not answer', cause)
  }
}

/** The problem to answer an error with. */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error
  const parser = bodyParserProblem(error)
  if (parser) return parser
  const { MongoNetworkError, MongoServerSelectionError, MongoNotConnectedError } = mongoose.mongo
  const away = [DatabaseAway, MongoNetworkError, MongoServerSelectionError, MongoNotConnectedError]
  // A write to a connection that the server has closed: the driver throws the socket's error unchanged.
  const closed = error instanceof Error && 'code' in error && /^(EPIPE|ECONNRESET)$/.test(String(error.code))
  if (closed || away.some((kind) => error instanceof kind)) return new DatabaseUnavailable(error)
  if (error instanceof mongoose.mongo.MongoServerError && error.code === maxTimeExpired)
    return new Problem(
      503,
      'took_too_long',
      'The query took too long',
      'Ask for less: fewer items, or a narrower filter',
    )
  return new Problem(500, 'internal', 'The platform failed', undefined, { cause: error })
}

/** The problem for an error of Express's body parser or router. */
function bodyParserProblem(error: unknown): Problem | null {
  if (!(error instanceof Error) || !('status' in error)) return null
  const type = 'type' in error ? error.type : undefined
  if (error.status === 413) return new Problem(413, 'too_large', 'The body is too large')
  if (error.status === 415)
    return new Problem(415, 'unsupported_media_type', 'The body must be application/json')
  if (type === 'entity.parse.failed') return new Problem(400, 'invalid_json', 'The body is not JSON')
  if (error.status === 400) return new Problem(400, 'bad_request', 'The request cannot be read')
  return null
}
