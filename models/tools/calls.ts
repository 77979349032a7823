import { askHttp, type HttpAnswer, needShallow, needSuccess } from '../../lib/http-answers.ts'
import { callFaultOf, callMcp, type McpAnswer } from '../../lib/mcp-call.ts'
import { ProbeFailed } from '../../lib/probe-stages.ts'
import { makeRedactor } from '../../lib/redact.ts'
import { CallFault } from '../../lib/runner-calls.ts'
import { outbound } from '../outbound.ts'
import { credentialOf } from './credentials.ts'
import { type Definition, notCallable, originOf } from './definitions.ts'
import { documentOf } from './documents.ts'
import { type ToolRequest, requestOfOperation, requestOfTemplate } from './requests.ts'
import { needAllowed } from './probes.ts'
import { definition, type ToolDocument } from './tools.ts'

// Calls of stored tools, by the API alone: the credential goes to the tool's own origin, and nowhere else.

/** One call of a tool. */
export interface ToolCalling {
  /** Of a server's tools or an API's operations; null: the tool is one. */
  name: string | null
  arguments: Record<string, unknown>
  withinMs: number
  signal: AbortSignal
}

/** What a tool answers. */
export interface ToolAnswer {
  /** Any JSON. */
  output: unknown
  /** The tool says that it has failed, and why. */
  is_error: boolean
  /** It would fail in the same way again. */
  lasting?: boolean
}

const mostBytes = 8 * 1024 ** 2

/** Throws CallFault: the tool could not be called, or its server failed. */
export async function callTool(tool: ToolDocument, asked: ToolCalling): Promise<ToolAnswer> {
  const of = definition(tool)
  needCallable(of)
  const { headers, secrets } = await credentialOf(tool).catch(orCallFault)
  const credential = { headers, redact: makeRedactor(secrets) }
  return of.kind === 'mcp'
    ? callServer(of, credential, asked)
    : callByHttp(of, credential, asked).catch(orCallFault)
}

interface Credential {
  headers: Record<string, string>
  redact: <T>(value: T) => T
}

/** Throws CallFault for a kind that no workflow can call. */
export function needCallable(of: Pick<Definition, 'kind' | 'transport'>): void {
  const why = notCallable(of)
  if (why) throw new CallFault('tool_not_callable', `The tool ${why}`, { permanent: true })
}

/** What a probe would say. */
export function orCallFault(error: unknown): never {
  throw error instanceof ProbeFailed ? callFaultOf(error.fault, error) : error
}

async function callServer(
  of: Definition,
  { headers, redact }: Credential,
  asked: ToolCalling,
): Promise<ToolAnswer> {
  const { url, transport } = of
  if (url === null || transport === null || transport === 'stdio') throw new Error('the tool has no URL')
  if (asked.name === null)
    throw new CallFault('arguments_invalid', 'The call does not name one of the server’s tools', {
      permanent: true,
    })
  try {
    needAllowed(url, Object.keys(headers).length > 0 ? of : null)
  } catch (error) {
    orCallFault(error)
  }
  const signal = AbortSignal.any([asked.signal, AbortSignal.timeout(asked.withinMs)])
  const call = { name: asked.name, arguments: asked.arguments, mostBytes, signal }
  return answerOf(await callMcp({ url, transport, headers, redact }, outbound(), call))
}

/** The structured content, or the text: JSON, if it is that of an object or a list. Other content as it is. */
export function answerOf({ content, structured, is_error, is_refusal }: McpAnswer): ToolAnswer {
  const texts = content.flatMap(({ type, text }) =>
    type === 'text' && typeof text === 'string' ? [text] : [],
  )
  if (is_error)
    return {
      output: texts.join('\n') || 'The tool has failed',
      is_error,
      ...(is_refusal ? { lasting: true } : {}),
    }
  if (structured !== undefined) return { output: structured, is_error }
  const output = texts.length === content.length ? readText(texts.join('\n')) : content
  return { output, is_error }
}

function readText(text: string): unknown {
  if (!/^\s*[{[]/.test(text)) return text
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return text
  }
  needShallow(value)
  return value
}

async function callByHttp(
  of: Definition,
  { headers, redact }: Credential,
  asked: ToolCalling,
): Promise<ToolAnswer> {
  const { withinMs, signal } = asked
  const request = await requestFor(of, headers, asked)
  const hasCredential = Object.keys(headers).length > 0
  needAllowed(request.url, hasCredential ? of : null)
  if (hasCredential && new URL(request.url).origin !== originOf(of))
    throw new CallFault('other_origin', 'The request leads to another origin than the tool’s credential', {
      permanent: true,
    })
  const { method, body } = request
  const answer = await askHttp(outbound(), request.url, {
    method,
    headers: { ...lowerCase(request.headers), ...lowerCase(headers) },
    ...(body === undefined ? {} : { body }),
    withinMs,
    signal,
  })
  return answerOfHttp(redact(answer), hasCredential)
}

/** The credential's stand instead of others of the same name. */
const lowerCase = (headers: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))

async function requestFor(
  of: Definition,
  headers: Record<string, string>,
  asked: ToolCalling,
): Promise<ToolRequest> {
  if (of.kind === 'http') return requestOfTemplate(of, asked.arguments)
  const { document, base } = await documentOf(of, headers, asked)
  return requestOfOperation(document, base, asked.name ?? '', asked.arguments)
}

/** Of a tool's error text. */
const mostErrorChars = 2_000

/** Statuses that a model can do something about are the tool's own errors. Throws CallFault for others of 300 and more. */
export function answerOfHttp({ status, body }: HttpAnswer, hasCredential: boolean): ToolAnswer {
  if (status < 300) return { output: body, is_error: false }
  if (status < 400)
    throw new CallFault('redirected', `The server redirects to another address (HTTP ${status})`, {
      permanent: true,
    })
  if (status === 401)
    throw new CallFault(
      'unauthorized',
      hasCredential
        ? 'The server refuses the credential (HTTP 401)'
        : 'The server wants a credential (HTTP 401)',
      { permanent: true },
    )
  if (status >= 500 || [408, 425, 429].includes(status)) needSuccess({ status })
  const said = typeof body === 'string' ? body : JSON.stringify(body)
  return { output: `HTTP ${status}: ${said.slice(0, mostErrorChars)}`, is_error: true, lasting: true }
}
