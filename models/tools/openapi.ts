import { CallFault } from '../../lib/runner-calls.ts'
import type { Method } from './definitions.ts'

// Operations of an OpenAPI document, as a workflow calls them: parameters are arguments by their names, and the body is one more.
// A document may be hostile: what is read of it is bounded.

type Json = Record<string, unknown>

export interface ApiParameter {
  name: string
  in: 'path' | 'query' | 'header'
  required: boolean
  style: string
  explode: boolean
  schema: unknown
}

export interface ApiOperation {
  id: string
  method: Method
  path: string
  /** As the document names it: it may be relative. */
  server: string | null
  description: string
  parameters: ApiParameter[]
  body: {
    /** The argument that is the body. */
    argument: string
    type: string
    is_form: boolean
    required: boolean
    schema: unknown
  } | null
}

const methods = ['get', 'post', 'put', 'patch', 'delete'] as const
const mostParameters = 100

const objectOf = (value: unknown): Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {}
const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')

/** What a reference within the document leads to. */
function resolved(document: Json, value: unknown, steps = 8): Json {
  const { $ref: reference } = objectOf(value)
  if (typeof reference !== 'string') return objectOf(value)
  if (steps === 0 || !reference.startsWith('#/')) return {}
  let at: unknown = document
  for (const part of reference.slice(2).split('/')) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~')
    const inner = objectOf(at)
    at = Object.hasOwn(inner, name) ? inner[name] : undefined
  }
  return resolved(document, at, steps - 1)
}

/** The ids of a document's operations, in its order. */
export const operationIdsIn = ({ paths }: Json): string[] =>
  Object.values(objectOf(paths)).flatMap((item) =>
    methods.flatMap((method) => {
      const { operationId } = objectOf(objectOf(item)[method])
      return typeof operationId === 'string' ? [operationId] : []
    }),
  )

/** Throws CallFault if there is none of this id, or if its body has a type that cannot be sent. */
export function operationIn(document: Json, id: string): ApiOperation {
  for (const [path, item] of Object.entries(objectOf(document['paths']))) {
    for (const method of methods) {
      const found = objectOf(objectOf(item)[method])
      if (found['operationId'] === id) return operationOf(document, path, objectOf(item), method, found)
    }
  }
  throw new CallFault('tool_missing', 'The document has no operation of this name', { permanent: true })
}

function operationOf(
  document: Json,
  path: string,
  item: Json,
  method: (typeof methods)[number],
  operation: Json,
): ApiOperation {
  const parameters = new Map<string, ApiParameter>()
  for (const one of [...listOf(item['parameters']), ...listOf(operation['parameters'])].slice(
    0,
    mostParameters,
  )) {
    const parameter = parameterOf(resolved(document, one))
    if (parameter) parameters.set(`${parameter.in} ${parameter.name}`, parameter)
  }
  const all = [...parameters.values()]
  const argument = all.some(({ name }) => name === 'body') ? 'request_body' : 'body'
  return {
    id: textOf(operation['operationId']),
    method: method.toUpperCase() as Method,
    path,
    server: serverOf(operation) ?? serverOf(item) ?? serverOf(document),
    description: [textOf(operation['summary']), textOf(operation['description'])].filter(Boolean).join('\n'),
    parameters: all,
    body: bodyOf(document, operation['requestBody'], argument),
  }
}

function parameterOf(one: Json): ApiParameter | null {
  const { name, in: place, required, style, explode, schema } = one
  if (typeof name !== 'string' || (place !== 'path' && place !== 'query' && place !== 'header')) return null
  return {
    name,
    in: place,
    required: place === 'path' || required === true,
    style: textOf(style) || (place === 'query' ? 'form' : 'simple'),
    explode: typeof explode === 'boolean' ? explode : place === 'query',
    schema,
  }
}

function serverOf({ servers }: Json): string | null {
  const [first] = listOf(servers)
  const { url, variables } = objectOf(first)
  if (typeof url !== 'string') return null
  return url.replaceAll(/\{([^{}]+)\}/g, (_, name: string) =>
    textOf(objectOf(objectOf(variables)[name])['default']),
  )
}

const isJson = (type: string): boolean => /^application\/([\w.-]+\+)?json$/i.test(type.split(';')[0] ?? '')
const form = 'application/x-www-form-urlencoded'

function bodyOf(document: Json, given: unknown, argument: string): ApiOperation['body'] {
  if (given === undefined) return null
  const { content, required } = resolved(document, given)
  const types = Object.keys(objectOf(content))
  const type = types.find(isJson) ?? types.find((one) => one === form)
  if (type === undefined)
    throw new CallFault('body_not_supported', 'The operation takes neither JSON nor a form', {
      permanent: true,
    })
  const { schema } = objectOf(objectOf(content)[type])
  return { argument, type, is_form: type === form, required: required === true, schema }
}

/** A JSON Schema of an operation's arguments, without references. */
export function inputSchemaOf(document: Json, { parameters, body }: ApiOperation): Json {
  const room = { left: mostParts }
  const properties: [string, unknown][] = parameters.map(({ name, schema }) => [
    name,
    inlined(document, schema, room, mostDepth),
  ])
  if (body) properties.push([body.argument, inlined(document, body.schema, room, mostDepth)])
  const required = [
    ...parameters.filter((one) => one.required).map(({ name }) => name),
    ...(body?.required ? [body.argument] : []),
  ]
  return { type: 'object', properties: Object.fromEntries(properties), required, additionalProperties: false }
}

/** References can fan out without end. What is beyond takes any value. */
const mostParts = 5_000
const mostDepth = 16

function inlined(document: Json, value: unknown, room: { left: number }, depth: number): unknown {
  if (--room.left < 0 || depth < 0) return {}
  if (Array.isArray(value)) return value.map((one) => inlined(document, one, room, depth - 1))
  if (typeof value !== 'object' || value === null) return value ?? {}
  if ('$ref' in value) return inlined(document, resolved(document, value), room, depth - 1)
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [name, inlined(document, inner, room, depth - 1)]),
  )
}
