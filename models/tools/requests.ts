import type { OutboundRequest } from '../../lib/outbound.ts'
import { needHeaders, sentBody } from '../../lib/http-answers.ts'
import { CallFault } from '../../lib/runner-calls.ts'
import { type Definition, placeholdersIn } from './definitions.ts'
import { type ApiParameter, type ApiOperation, operationIn } from './openapi.ts'

// What the arguments of a call become as a request of HTTP. They may be a model's, and hostile: they stay in their place of the
// URL.

export interface ToolRequest {
  method: OutboundRequest['method']
  url: string
  headers: Record<string, string>
  body?: string
}

type Json = Record<string, unknown>

/** Of a tool of kind `http`: what its template does not name is the query of GET and DELETE, and else the body. */
export function requestOfTemplate(of: Definition, given: Json): ToolRequest {
  const { url: template, method, headers } = of
  if (template === null || method === null) throw new Error('the tool has no template')
  const [path = '', query] = template.split(/\?(.*)/s)
  const fill = (text: string, isPath: boolean): string =>
    text.replaceAll(/\{(\w+)\}/g, (_, name: string) => (isPath ? pathPart : queryPart)(name, given[name]))
  const filled = query === undefined ? fill(path, true) : `${fill(path, true)}?${fill(query, false)}`
  const named = new Set(placeholdersIn(template))
  const rest = Object.entries(given).filter(([name]) => !named.has(name))
  if (method === 'GET' || method === 'DELETE')
    return {
      method,
      url: withQuery(
        filled,
        rest.flatMap(([name, value]) => pairsOf(name, value, true)),
      ),
      headers,
    }
  const type = Object.keys(headers).some((name) => name.toLowerCase() === 'content-type')
    ? {}
    : { 'content-type': 'application/json' }
  return {
    method,
    url: filled,
    headers: { ...type, ...headers },
    body: JSON.stringify(Object.fromEntries(rest)),
  }
}

const invalid = (message: string): CallFault =>
  new CallFault('arguments_invalid', message, { permanent: true })

const isGiven = (value: unknown): boolean => value !== undefined && value !== null
const textOf = (value: unknown): string =>
  typeof value === 'string'
    ? value
    : Array.isArray(value)
      ? value.map(textOf).join(',')
      : JSON.stringify(value)

/** One part of a path. Neither an empty one nor dots, which would lead to another path. */
function pathPart(name: string, value: unknown): string {
  if (!isGiven(value)) throw invalid(`The argument ${name} is missing`)
  const text = textOf(value)
  if (text === '' || text === '.' || text === '..')
    throw invalid(`The argument ${name} cannot be a part of a path`)
  return encodeURIComponent(text)
}

const queryPart = (_: string, value: unknown): string =>
  isGiven(value) ? encodeURIComponent(textOf(value)) : ''

function pairsOf(name: string, value: unknown, explode: boolean): [string, string][] {
  if (!isGiven(value)) return []
  if (Array.isArray(value) && explode) return value.map((one) => [name, textOf(one)])
  return [[name, textOf(value)]]
}

function withQuery(url: string, pairs: [string, string][]): string {
  if (pairs.length === 0) return url
  const query = new URLSearchParams(pairs).toString()
  return `${url}${url.includes('?') ? '&' : '?'}${query}`
}

/** Of an operation of an API. `base`: to what the URL of its server is relative. Throws CallFault. */
export function requestOfOperation(
  document: Json,
  base: string | null,
  id: string,
  given: Json,
): ToolRequest {
  const operation = operationIn(document, id)
  const { method, path, server, parameters, body } = operation
  const root = server === null ? null : URL.parse(server, base ?? undefined)
  if (!root || !/^https?:$/.test(root.protocol))
    throw new CallFault('document_unreadable', 'The document names no server', { permanent: true })
  needKnown(operation, given)
  const of = (place: ApiParameter['in']) => parameters.filter((one) => one.in === place)
  const missing = parameters.find(({ name, required }) => required && !isGiven(given[name]))
  if (missing) throw invalid(`The argument ${missing.name} is missing`)
  const filled = path.replaceAll(/\{([^{}]+)\}/g, (_, name: string) => pathPart(name, given[name]))
  const pairs = of('query').flatMap((one) => queryOf(one, given[one.name]))
  const headers = Object.fromEntries(
    of('header').flatMap(({ name }) => (isGiven(given[name]) ? [[name, textOf(given[name])]] : [])),
  )
  needHeaders(headers)
  const url = withQuery(`${root.href.replace(/[?#].*$/s, '').replace(/\/$/, '')}${filled}`, pairs)
  if (!body || !isGiven(given[body.argument])) {
    if (body?.required) throw invalid(`The argument ${body.argument} is missing`)
    return { method, url, headers }
  }
  const value = given[body.argument]
  const sent = body.is_form ? formOf(value) : sentBody(JSON.stringify(value))
  const text = body.is_form || typeof value !== 'string' ? (sent?.body ?? '') : JSON.stringify(value)
  return { method, url, headers: { ...headers, 'content-type': body.type }, body: text }
}

function needKnown({ parameters, body }: ApiOperation, given: Json): void {
  const known = new Set([...parameters.map(({ name }) => name), ...(body ? [body.argument] : [])])
  const unknown = Object.keys(given).find((name) => !known.has(name))
  if (unknown !== undefined) throw invalid(`The operation has no argument ${unknown.slice(0, 100)}`)
}

function queryOf({ name, explode, style }: ApiParameter, value: unknown): [string, string][] {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
  if (!isObject) return pairsOf(name, value, explode)
  const named = (field: string): string => (style === 'deepObject' ? `${name}[${field}]` : field)
  return Object.entries(value).flatMap(([field, one]) => pairsOf(named(field), one, true))
}

function formOf(value: unknown): { body: string } {
  const pairs = Object.entries(Object(value) as Json).flatMap(([name, one]) => pairsOf(name, one, true))
  return { body: new URLSearchParams(pairs).toString() }
}
