import type { ErrorRequestHandler } from 'express'
import mongoose from 'mongoose'
import { z } from 'zod'
import type { Logger } from '../lib/log.ts'
import { type InputError, InvalidInput, Problem } from '../lib/problem.ts'
import { DatabaseAway } from '../models/database-away.ts'

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

/** Parses, or throws InvalidInput with a pointer to each mistake. */
export function parse<T extends z.ZodType>(schema: T, input: unknown, status: 400 | 422): z.output<T> {
  const parsed = schema.safeParse(input)
  if (parsed.success) return parsed.data
  throw new InvalidInput(status, inputErrors(parsed.error))
}

const inputErrors = (error: z.ZodError): InputError[] =>
  error.issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys'
      ? issue.keys.map((key) => ({ pointer: pointer([...issue.path, key]), message: 'is not a known field' }))
      : [{ pointer: pointer(issue.path), message: issue.message }],
  )

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

/** The problem to answer an error with. */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error
  const parser = bodyParserProblem(error)
  if (parser) return parser
  const { MongoNetworkError, MongoServerSelectionError, MongoNotConnectedError } = mongoose.mongo
  const away = [MongoNetworkError, MongoServerSelectionError, MongoNotConnectedError]
  // A write to a connection that the server has closed: the driver throws the socket's error unchanged.
  const closed = error instanceof Error && 'code' in error && /^(EPIPE|ECONNRESET)$/.test(String(error.code))
  if (closed || away.some((kind) => error instanceof kind)) return new DatabaseAway(error)
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
