import { z } from 'zod'
import { isSocket, isStream, type Operation, successOf } from './operation.ts'
import { areaOf, areas } from './document/areas.ts'
import { examples } from './document/examples.ts'
import { withFieldWords } from './document/field-words.ts'
import { introduction } from './document/introduction.ts'
import { collectionsOf, operationIdOf } from './document/operation-ids.ts'
import { ProblemView } from './problems.ts'

type Json = Record<string, unknown>

const statusText: Record<number, string> = {
  101: 'A WebSocket',
  200: 'Done',
  201: 'Created',
  202: 'Accepted; follow Operation-Location',
  204: 'Done',
  400: 'The query or the syntax is invalid',
  401: 'Not authenticated',
  403: 'Not allowed: the problem names the missing permission or another reason',
  404: 'Not found, or another tenant’s',
  405: 'The path does not have this method',
  409: 'Not possible in the current state',
  412: 'The resource has a revision that If-Match does not name',
  413: 'The body is too large',
  415: 'The operation does not take a body of this media type',
  422: 'The body is invalid, or the Idempotency-Key was used for another request',
  426: 'The request does not open a WebSocket',
  429: 'Too many requests',
  500: 'The platform failed',
  502: 'One of the tenant’s servers failed: the problem says how',
  503: 'Temporarily unavailable',
  504: 'The work takes longer than a request may wait; repeat the request to continue waiting',
}

const knownHeaders: Record<string, [type: 'integer' | 'string', about: string]> = {
  'X-Request-Id': ['string', 'Names this request in logs and audit events'],
  'RateLimit-Limit': ['integer', 'Requests that are allowed in the current window'],
  'RateLimit-Remaining': ['integer', 'Requests that are left in the current window'],
  'RateLimit-Reset': ['integer', 'Seconds until the window ends'],
  'Retry-After': ['integer', 'Seconds to wait before the next attempt'],
  'WWW-Authenticate': ['string', 'How to authenticate'],
  Allow: ['string', 'The methods that the path has'],
  ETag: ['string', 'The revision, for If-Match'],
  Upgrade: ['string', 'The protocol to use instead'],
  Location: ['string', 'The URL of the new resource'],
  'Operation-Location': ['string', 'The URL of the operation to follow'],
}
const always = ['X-Request-Id', 'RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset']
const ofRefusals: Record<number, string[]> = {
  401: ['WWW-Authenticate'],
  405: ['Allow'],
  426: ['Upgrade'],
  429: ['Retry-After'],
  503: ['Retry-After'],
}
const headersOf = (names: string[]): Json =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]))

/** Whether it is in the document: the internal API is for the platform's own parts, and changes with them. */
export const isDocumented = ({ path }: Pick<Operation, 'path'>): boolean => !path.startsWith('/internal/')

/** Generates the OpenAPI 3.1 document from the declarations. `url` is the API's public URL. */
export function openApiDocument(operations: Operation[], url: string): Json {
  const schemas: Json = {}
  const paths: Record<string, Json> = {}
  const documented = operations.filter(isDocumented)
  const collections = collectionsOf(documented)
  for (const operation of documented) {
    const path = (paths[operation.path] ??= {})
    const id = operationIdOf(operation, collections)
    path[operation.method.toLowerCase()] = describe(operation, id, schemas)
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Keelson',
      version: '1',
      description: introduction,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url }],
    security: [{ bearer: [] }],
    tags: areas.map(({ name, description }) => ({ name, description })),
    paths,
    components: {
      schemas,
      responses: sharedRefusals(schemas),
      headers: Object.fromEntries(
        Object.entries(knownHeaders).map(([name, [type, description]]) => [
          name,
          { description, schema: { type } },
        ]),
      ),
      securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } },
    },
  }
}

function describe(operation: Operation, operationId: string, schemas: Json): Json {
  const { method, path, permission, summary, body, form, bytes, media_types = [] } = operation
  const mediaTypes = form
    ? ['application/x-www-form-urlencoded']
    : bytes
      ? [bytes.media_type]
      : ['application/json', ...media_types]
  const open = typeof permission === 'object' && permission.for === 'anybody'
  const known = operation.example ?? examples[operationId]
  const example = known === undefined ? {} : { example: known }
  return {
    operationId,
    tags: [operation.area ?? areaOf(path)],
    summary,
    description:
      typeof permission === 'string'
        ? `Needs the permission \`${permission}\`.`
        : `Needs no permission: ${permission.because}.`,
    ...(open ? { security: [] } : {}),
    parameters: parametersOf(operation, schemas),
    ...(body
      ? {
          requestBody: {
            required: !body.safeParse(undefined).success,
            content: Object.fromEntries(
              mediaTypes.map((type) => [type, { schema: schemaOf(body, 'input', schemas), ...example }]),
            ),
          },
        }
      : {}),
    responses: { ...successResponse(operation, schemas), ...refusals(operation, method, open, schemas) },
  }
}

function parametersOf(operation: Operation, schemas: Json): Json[] {
  const { params, query, method, permission } = operation
  const of = (place: 'path' | 'query', source: z.ZodType | undefined): Json[] => {
    if (!source) return []
    const { properties = {}, required = [] } = schemaOf(source, 'input', schemas) as {
      properties?: Record<string, Json>
      required?: string[]
    }
    return Object.entries(properties).map(([name, { description, ...schema }]) => ({
      name,
      in: place,
      required: place === 'path' || required.includes(name),
      ...(description === undefined ? {} : { description }),
      schema,
    }))
  }
  const idempotent =
    method === 'POST' &&
    !operation.takes_no_key &&
    !(typeof permission === 'object' && ['anybody', 'hosts', 'runners'].includes(permission.for))
  const key = {
    name: 'Idempotency-Key',
    in: 'header',
    required: false,
    description:
      'A repeated request with the same key within 24 h gets the first answer; nothing is done twice',
    schema: { type: 'string', minLength: 1, maxLength: 255, pattern: '^[\\x21-\\x7e]+$' },
  }
  const match = {
    name: 'If-Match',
    in: 'header',
    required: false,
    description: 'The ETag on which the change is based; a resource with another one is not changed (412)',
    schema: { type: 'string' },
  }
  return [
    ...of('path', params),
    ...of('query', query),
    ...(idempotent ? [key] : []),
    ...(isConditional(operation) ? [match] : []),
  ]
}

function successResponse(operation: Operation, schemas: Json): Json {
  const { status, body } = successOf(operation)
  if (isSocket(body)) return { [status]: { description: `${statusText[status]}: ${body.socket}` } }
  const content = isStream(body)
    ? { [body.stream]: { schema: schemaOf(body.schema, 'output', schemas) } }
    : body && { 'application/json': { schema: schemaOf(body, 'output', schemas) } }
  const own = status === 201 ? ['Location'] : status === 202 ? ['Operation-Location'] : []
  const isShown = body !== null && 'shape' in body && 'revision' in (body.shape as object)
  const etag = operation.revised && isShown ? ['ETag'] : []
  const answer = (as: number, headers: string[]): Json => ({
    [as]: {
      description: statusText[as],
      headers: headersOf([...always, ...headers, ...etag]),
      ...(content ? { content } : {}),
    },
  })
  return {
    ...answer(status, own),
    ...(status !== 201 && 201 in operation.responses ? answer(201, ['Location']) : {}),
    ...(status !== 202 && 202 in operation.responses ? answer(202, ['Operation-Location']) : {}),
  }
}

/** Whether it takes If-Match. */
const isConditional = ({ revised, method, path }: Operation): boolean =>
  revised === true && method !== 'GET' && path.includes('{')

function refusals(operation: Operation, method: string, open: boolean, schemas: Json): Json {
  const { params, permission, path, refusal, refuses = [] } = operation
  const statuses: number[] = [400, 409, 429, 500, 503, ...refuses]
  if (!open || /login|enrol|^\/hooks\//.test(path)) statuses.push(401)
  if (typeof permission === 'string' || permission.for === 'users') statuses.push(403)
  if (params) statuses.push(404)
  if (isSocket(successOf(operation).body)) statuses.push(426)
  if (isConditional(operation)) statuses.push(412)
  if (method !== 'GET') statuses.push(413, 415, 422)
  const own = refusal && {
    description: 'Refused',
    content: {
      'application/json': { schema: schemaOf(refusal, 'output', schemas) },
      'application/problem+json': { schema: schemaOf(ProblemView, 'output', schemas) },
    },
  }
  return {
    ...Object.fromEntries(statuses.map((status) => [status, { $ref: `#/components/responses/${status}` }])),
    ...(own ? { 400: own, 401: own } : {}),
  }
}

/** The error responses, which all operations share. */
function sharedRefusals(schemas: Json): Json {
  const content = { 'application/problem+json': { schema: schemaOf(ProblemView, 'output', schemas) } }
  const statuses = Object.entries(statusText).filter(([status]) => Number(status) >= 400)
  return Object.fromEntries(
    statuses.map(([status, description]) => {
      const headers = headersOf([...always, ...(ofRefusals[Number(status)] ?? [])])
      return [status, { description, headers, content }]
    }),
  )
}

/** The JSON schema of a type. Named types go to the document's components, once. */
function schemaOf(type: z.ZodType, io: 'input' | 'output', schemas: Json): Json {
  const made = z.toJSONSchema(type, { io, unrepresentable: 'any', target: 'draft-2020-12' })
  const { $schema: _, ...schema } = withFieldWords(
    JSON.parse(JSON.stringify(made).replaceAll('"#/$defs/', '"#/components/schemas/')),
  ) as Json
  const { $defs, ...rest } = schema
  Object.assign(schemas, $defs)
  const id = rest['id']
  if (typeof id !== 'string') return rest
  schemas[id] = rest
  return { $ref: `#/components/schemas/${id}` }
}
