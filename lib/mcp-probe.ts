import {
  Client,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  SSEClientTransport,
  SseError,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client'
import { type Bounds, clientFault, endsWith, listingOf, type McpListing, patience } from './mcp-client.ts'
import { loginOf } from './mcp-login.ts'
import { type WatchedFetch, watchFetch } from './outbound-fetch.ts'
import type { Outbound } from './outbound.ts'
import { networkFault, statusFault } from './probe-faults.ts'
import { type Fault, ProbeFailed, type Stages } from './probe-stages.ts'

// Asks an MCP server what tools it has, by the MCP project's own client, and says how far that came.

export interface McpServer {
  url: string
  transport: 'streamable_http' | 'sse' | 'auto'
  /** With the credential. */
  headers: Record<string, string>
  /** Takes the secrets out of what the server says. */
  redact: <T>(value: T) => T
}

export const usualBounds: Bounds = { withinMs: 20_000, mostBytes: 4 * 1024 ** 2, mostTools: 256 }

/** Statuses by which a server says that it has no streamable HTTP at this path. */
export const olderServer: unknown[] = [400, 404, 405]

/** Notes the stages from `dns` on in `stages`. Throws ProbeFailed. */
export async function probeMcp(
  server: McpServer,
  guard: Pick<Outbound, 'connector'>,
  stages: Stages,
  bounds: Bounds = usualBounds,
): Promise<McpListing> {
  const signal = AbortSignal.timeout(bounds.withinMs)
  if (server.transport !== 'auto') return attempt(server.transport, server, guard, stages, bounds, signal)
  try {
    return await attempt('streamable_http', server, guard, stages, bounds, signal)
  } catch (error) {
    if (!(error instanceof ProbeFailed && olderServer.includes(statusOf(error.cause)))) throw error
    try {
      return await attempt('sse', server, guard, stages, bounds, signal)
    } catch (second) {
      // Neither is there: what the newer transport said is about the path.
      throw second instanceof ProbeFailed && second.fault.stage === 'http' ? error : second
    }
  }
}

async function attempt(
  kind: 'streamable_http' | 'sse',
  server: McpServer,
  guard: Pick<Outbound, 'connector'>,
  stages: Stages,
  bounds: Bounds,
  signal: AbortSignal,
): Promise<McpListing> {
  const { origin } = new URL(server.url)
  const { mostBytes } = bounds
  const way = watchFetch(guard, { origin, headers: server.headers, mostBytes, signal })
  const { client, transport } = makeClient(kind, server.url, way)
  let phase: 'initialize' | 'list' = 'initialize'
  const begun = performance.now()
  try {
    await endsWith(signal, client.connect(transport, patience))
    noteNetwork(stages, way)
    stages.set('auth', 0)
    stages.set('initialize', sinceHead(begun, way))
    phase = 'list'
    const { mostTools } = bounds
    return await stages.run('list', () =>
      endsWith(signal, listingOf(client, kind, { mostTools, redact: server.redact })),
    )
  } catch (error) {
    noteNetwork(stages, way)
    const measured: ReadonlyMap<string, number> = way.spent
    const elapsed = sinceHead(begun, way)
    const fault = await faultOf(error, phase, way, server, signal)
    if (fault.stage !== 'list') stages.set(fault.stage, measured.get(fault.stage) ?? elapsed)
    throw new ProbeFailed(fault, { cause: error })
  } finally {
    await leave(server.url, client, transport, way)
    await way.close()
  }
}

export function makeClient(kind: 'streamable_http' | 'sse', url: string, { fetch }: WatchedFetch) {
  // Servers with the older transport are older than the negotiation.
  const mode = kind === 'sse' ? 'legacy' : 'auto'
  const client = new Client(
    { name: 'keelson', version: '1' },
    { capabilities: {}, versionNegotiation: { mode, probe: { timeoutMs: patience.timeout } } },
  )
  const transport =
    kind === 'sse'
      ? new SSEClientTransport(new URL(url), { fetch })
      : new StreamableHTTPClientTransport(new URL(url), {
          fetch,
          reconnectionOptions: {
            maxRetries: 0,
            initialReconnectionDelay: 1,
            maxReconnectionDelay: 1,
            reconnectionDelayGrowFactor: 1,
          },
        })
  return { client, transport }
}

/** How long a server may take to hear that its session ends. */
const leaveWithinMs = 2_000

/** Ends the session, which the server would otherwise keep. What it answers changes nothing. */
export async function leave(
  url: string,
  client: Client,
  transport: ReturnType<typeof makeClient>['transport'],
  way: WatchedFetch,
): Promise<void> {
  // The client ends no session of a handshake that failed.
  const { sessionId, protocolVersion } =
    transport instanceof StreamableHTTPClientTransport ? transport : { sessionId: undefined }
  if (sessionId !== undefined) {
    way.extend(leaveWithinMs)
    const version = protocolVersion === undefined ? {} : { 'mcp-protocol-version': protocolVersion }
    const headers = { 'mcp-session-id': sessionId, ...version }
    await way.fetch(url, { method: 'DELETE', headers }).catch(() => {})
  }
  await client.close().catch(() => {})
  await transport.close().catch(() => {})
}

/** What is left of the time since `begun` after the steps of the first request. */
const sinceHead = (begun: number, { spent }: WatchedFetch): number =>
  Math.max(0, performance.now() - begun - [...spent.values()].reduce((sum, ms) => sum + ms, 0))

function noteNetwork(stages: Stages, { spent }: WatchedFetch): void {
  for (const [step, ms] of spent) stages.set(step, ms)
}

/** Why the attempt failed: what the connection says comes before what the client makes of it. */
async function faultOf(
  error: unknown,
  phase: 'initialize' | 'list',
  way: WatchedFetch,
  server: McpServer,
  signal: AbortSignal,
): Promise<Fault> {
  if (way.tooLarge)
    return {
      stage: phase,
      reason: 'too_large',
      cause: 'The answers of the server are too large',
      remedy: 'Let the server have fewer tools, or shorter descriptions and schemas',
    }
  const unanswered = way.fault ?? (signal.aborted && way.waiting ? { step: way.waiting, error } : null)
  if (unanswered) return networkFault(unanswered, signal.aborted)
  const hasCredential = Object.keys(server.headers).length > 0
  // Later answers may be to what nobody waits for.
  const answer = phase === 'initialize' ? way.answer : null
  const status = statusOf(error) ?? answer?.status ?? null
  if (status === 401) return { ...statusFault(401, hasCredential), ...(await loginOf(way, server)) }
  if (status !== null && status >= 300) return statusFault(status, hasCredential)
  if (signal.aborted)
    return {
      stage: phase,
      reason: 'no_answer',
      cause: `The server accepted the ${phase === 'list' ? 'request for its tools' : 'handshake'} but did not answer it in time`,
      remedy: 'Look at the log of the server, and try again',
    }
  if (answer && isNoMcp(error, answer.headers))
    return {
      stage: 'http',
      reason: 'not_mcp',
      cause: `The server answers with ${contentType(answer.headers)}, which is not MCP`,
      remedy: 'Check the path in the URL: this may be a web page or another API',
    }
  return clientFault(error, phase, server.redact)
}

/** Not a message of the protocol at all. A valid error in it is one of the server. */
function isNoMcp(error: unknown, headers: Headers): boolean {
  if (error instanceof SdkError && error.code === SdkErrorCode.ClientHttpUnexpectedContent) return true
  return !/^(application\/json|text\/event-stream)$/.test(contentType(headers))
}

function contentType(headers: Headers): string {
  const [type = ''] = (headers.get('content-type') ?? '').split(';')
  return /^[\w.+-]{1,40}\/[\w.+-]{1,40}$/.test(type) ? type.toLowerCase() : 'no content type'
}

/** The HTTP status that an error of the client is about, wherever in its causes. */
export function statusOf(error: unknown): number | null {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (at instanceof SdkHttpError) return at.status
    if (at instanceof SseError && at.code !== undefined) return at.code
  }
  return null
}
