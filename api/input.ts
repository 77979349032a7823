import { z } from 'zod'
import express, { type Request, type Response } from 'express'
import { NotFound, Problem, TokenRefused } from '../lib/problem.ts'
import { type Operation, successOf } from './operation.ts'
import { parse } from './problems.ts'

// What a request says, as its operation declares it.

/** A malformed id gets 404, like an unknown one. */
export function readParams({ params }: Operation, request: Request): unknown {
  if (!params) return undefined
  const parsed = params.safeParse({ ...request.params })
  if (!parsed.success) throw new NotFound('resource')
  return parsed.data
}

export const readQuery = ({ query }: Operation, request: Request): unknown =>
  query ? parse(query, request.query, 400) : parseNothing(request.query, 'query', 400)

export async function readInput(
  operation: Operation,
  request: Request,
  response: Response,
  readBody: express.RequestHandler,
): Promise<unknown> {
  const { body, method, form, bytes, media_types = [] } = operation
  if (method === 'GET') return undefined
  const hasBody =
    request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0
  if (form && body) {
    if (hasBody && !request.is('application/x-www-form-urlencoded'))
      throw new TokenRefused('invalid_request', 'The body must be application/x-www-form-urlencoded')
    if (hasBody) await read(request, response, readBody)
    const parsed = body.safeParse({ ...(request.body as object) })
    if (!parsed.success) throw new TokenRefused('invalid_request', z.prettifyError(parsed.error))
    return parsed.data
  }
  if (!hasBody) return body ? parse(body, undefined, 422) : undefined
  const [mediaType = '', ...others] = bytes ? [bytes.media_type] : ['application/json', ...media_types]
  if (!request.is([mediaType, ...others]))
    throw new Problem(415, 'unsupported_media_type', `The body must be ${mediaType}`)
  await read(request, response, readBody)
  return body
    ? parse(body, request.body, 422, fixedFields(operation))
    : parseNothing(request.body as object, 'body', 422)
}

/** The fields of a change's answer. Those that the change does not take cannot be changed. */
function fixedFields(operation: Operation): string[] {
  const { body } = successOf(operation)
  if (!['PUT', 'PATCH'].includes(operation.method) || !body || !('shape' in body)) return []
  return Object.keys(body.shape as object)
}

export const jsonReader = (kib: number): express.RequestHandler =>
  express.json({
    limit: `${kib}kb`,
    strict: false,
    type: () => true, // `readInput` checks the media type
  })

/** The reader of a body with limits of its own. */
export function readerOf({ bytes, json_kib }: Operation): express.RequestHandler | null {
  if (bytes) return bytesReader(bytes)
  return json_kib === undefined ? null : jsonReader(json_kib)
}

const bytesReader = ({ at_most_kib }: NonNullable<Operation['bytes']>): express.RequestHandler =>
  express.raw({ limit: `${at_most_kib}kb`, type: () => true, inflate: false })

const read = (request: Request, response: Response, readBody: express.RequestHandler): Promise<void> =>
  new Promise((resolve, reject) =>
    readBody(request, response, (error?: unknown) => (error ? reject(error) : resolve())),
  )

/** Refuses unknown fields for an operation that takes none. */
function parseNothing(given: unknown, what: string, status: 400 | 422): undefined {
  const fields = typeof given === 'object' && given !== null ? Object.keys(given) : ['']
  if (fields.length === 0) return undefined
  throw new Problem(status, 'invalid_input', 'The request is invalid', undefined, {
    extensions: {
      errors: fields.map((field) => ({
        pointer: `/${field}`,
        message: `is not a known field of the ${what}`,
      })),
    },
  })
}
