import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/client'
import { clientFault, endsWith, patience, short } from './mcp-client.ts'
import { needShallow } from './http-answers.ts'
import { leave, makeClient, type McpServer, olderServer, statusOf } from './mcp-probe.ts'
import { type WatchedFetch, watchFetch } from './outbound-fetch.ts'
import type { Outbound } from './outbound.ts'
import { networkFault, statusFault } from './probe-faults.ts'
import type { Fault } from './probe-stages.ts'
import { CallFault } from './runner-calls.ts'

// Calls a tool of an MCP server: a session of its own for each call.

/** What a tool answers. */
export interface McpAnswer {
  content: { type: string; text?: unknown; [field: string]: unknown }[]
  /** Undefined: there is none. */
  structured: unknown
  is_error: boolean
  /** The server has not called the tool: its name or the arguments are wrong. */
  is_refusal: boolean
}

export interface McpToolCall {
  name: string
  arguments: Record<string, unknown>
  /** Of all answers together. */
  mostBytes: number
  signal: AbortSignal
}

/** Throws CallFault, in our words and without secrets. */
export async function callMcp(
  server: McpServer,
  guard: Pick<Outbound, 'connector'>,
  call: McpToolCall,
): Promise<McpAnswer> {
  if (server.transport !== 'auto') return attempt(server.transport, server, guard, call)
  try {
    return await attempt('streamable_http', server, guard, call)
  } catch (error) {
    const isOlder = error instanceof CallFault && olderServer.includes(statusOf(error.cause))
    if (!isOlder) throw error
    return attempt('sse', server, guard, call)
  }
}

async function attempt(
  kind: 'streamable_http' | 'sse',
  server: McpServer,
  guard: Pick<Outbound, 'connector'>,
  { name, arguments: given, mostBytes, signal }: McpToolCall,
): Promise<McpAnswer> {
  const { origin } = new URL(server.url)
  const way = watchFetch(guard, { origin, headers: server.headers, mostBytes, signal })
  const { client, transport } = makeClient(kind, server.url, way)
  let isConnected = false
  try {
    await endsWith(signal, client.connect(transport, patience))
    isConnected = true
    const params = { name, arguments: given }
    const asked = client.request({ method: 'tools/call', params }, patience)
    const answer = answerIn(await endsWith(signal, asked))
    needShallow([answer.content, answer.structured])
    return server.redact(answer)
  } catch (error) {
    if (isConnected && !way.tooLarge && error instanceof ProtocolError) return server.redact(refusalOf(error))
    throw error instanceof CallFault ? error : faultOf(error, isConnected, way, server, signal)
  } finally {
    await leave(server.url, client, transport, way)
    await way.close()
  }
}

function answerIn(result: unknown): McpAnswer {
  const { content, structuredContent, isError } = Object(result) as Record<string, unknown>
  return {
    content: Array.isArray(content) ? (content as McpAnswer['content']) : [],
    structured: structuredContent,
    is_error: isError === true,
    is_refusal: false,
  }
}

const refusals: number[] = [ProtocolErrorCode.InvalidParams, ProtocolErrorCode.MethodNotFound]

const refusalOf = ({ code, message }: ProtocolError): McpAnswer => ({
  content: [{ type: 'text', text: message }],
  structured: undefined,
  is_error: true,
  is_refusal: refusals.includes(code),
})

/** Faults that may be over at the next attempt. */
const passing = new Set([
  'name_not_found',
  'name_lookup_timed_out',
  'connect_timed_out',
  'tls_timed_out',
  'refused',
  'unreachable',
  'no_answer',
  'connection_ended',
  'rate_limited',
  'server_error',
])

/** What a probe says of a fault, for the caller. */
export const callFaultOf = ({ reason, cause }: Fault, error?: unknown): CallFault =>
  new CallFault(reason, cause, { permanent: !passing.has(reason), cause: error })

function faultOf(
  error: unknown,
  isConnected: boolean,
  way: WatchedFetch,
  server: McpServer,
  signal: AbortSignal,
): CallFault {
  if (way.tooLarge)
    return new CallFault('too_large', 'The answer of the tool is too large', {
      permanent: true,
      cause: error,
    })
  const unanswered = way.fault ?? (signal.aborted && way.waiting ? { step: way.waiting, error } : null)
  if (unanswered) return callFaultOf(networkFault(unanswered, signal.aborted), error)
  const status = statusOf(error) ?? (isConnected ? null : (way.answer?.status ?? null))
  if (status !== null && status >= 300)
    return callFaultOf(statusFault(status, Object.keys(server.headers).length > 0), error)
  if (signal.aborted)
    return new CallFault('no_answer_in_time', 'The tool did not answer in time', {
      permanent: false,
      cause: error,
    })
  const { reason, cause } = clientFault(error, 'initialize', server.redact)
  const why = isConnected ? 'The answer of the tool does not follow MCP' : short(cause)
  return new CallFault(reason, why, { permanent: true, cause: error })
}
