import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import type { ContainerEngine, LogEntry } from '../../drivers/containers.ts'
import { EngineError } from '../../drivers/errors.ts'
import { listenAddress } from '../../lib/addresses.ts'
import { planeSubject } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { InvalidInput, NotFound, Problem, Unavailable } from '../../lib/problem.ts'
import type { PlaneTokens } from './plane-tokens.ts'

// Node's own pause between keep-alive probes is two hours: a reader that vanished would be served that long.
const probeEveryMs = 30_000

interface Parts {
  engine: ContainerEngine
  tokens: PlaneTokens
  log: Logger
}

export interface DataPlane {
  port: number
  /** Ends all streams. */
  close(): Promise<void>
}

/** Serves what passes between a tenant and an instance on this host. Only the API comes here, with a token. */
export async function serveDataPlane(
  parts: Parts,
  { address, port }: { address: string; port: number },
): Promise<DataPlane> {
  const server = createServer(
    { keepAlive: true, keepAliveInitialDelay: probeEveryMs },
    (request, response) => {
      answer(parts, request, response).catch((error: unknown) => refuse(parts.log, error, response))
    },
  )
  server.listen(port, listenAddress(address))
  await once(server, 'listening')
  const bound = server.address()
  return {
    port: typeof bound === 'object' && bound ? bound.port : port,
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}

async function answer(parts: Parts, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? '/', 'http://host')
  if (request.method !== 'GET') throw new NotFound('operation')
  if (url.pathname === '/healthz') return void response.end('ok\n')

  const [, id] = /^\/instances\/([\w-]{1,64})\/logs$/.exec(url.pathname) ?? []
  if (id === undefined) throw new NotFound('operation')
  await parts.tokens.redeem(request.headers.authorization, planeSubject(id, 'logs'))
  await sendLogs(parts.engine, id, logQuery(url.searchParams), response)
}

const LogQuery = z.strictObject({
  lines: z.coerce.number().int().min(0).optional(),
  since: z.iso.datetime({ offset: true }).optional(),
  follow: z.enum(['true', 'false']).default('false'),
})

function logQuery(params: URLSearchParams): z.infer<typeof LogQuery> {
  const { data, error } = LogQuery.safeParse(Object.fromEntries(params))
  if (data) return data
  const errors = error.issues.map(({ path, message }) => ({ pointer: path.join('.'), message }))
  throw new InvalidInput(400, errors)
}

async function sendLogs(
  engine: ContainerEngine,
  id: string,
  { lines, since, follow }: z.infer<typeof LogQuery>,
  response: ServerResponse,
): Promise<void> {
  // Before the first byte: a container without output says nothing for as long as it lives.
  if (!(await engine.find(id))) throw new NotFound('instance')
  const gone = new AbortController()
  response.on('close', () => gone.abort())
  response.writeHead(200, { 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' })
  response.flushHeaders()
  const entries = engine.logs(id, {
    follow: follow === 'true',
    signal: gone.signal,
    ...(lines === undefined ? {} : { lines }),
    ...(since === undefined ? {} : { since }),
  })
  await pipeline(Readable.from(jsonLines(entries)), response)
}

async function* jsonLines(entries: AsyncIterable<LogEntry>): AsyncGenerator<string> {
  for await (const { time, stream, line } of entries) yield `${JSON.stringify({ time, stream, line })}\n`
}

function refuse(log: Logger, error: unknown, response: ServerResponse): void {
  if (response.headersSent) {
    // The reader left, or the engine did: then a broken stream is the only honest end.
    if (!response.destroyed) log.warn({ err: error }, 'a stream broke off')
    return void response.destroy()
  }
  const problem = problemOf(error)
  if (problem.status >= 500) log.error({ err: error }, 'a request failed')
  response.writeHead(problem.status, { 'content-type': 'application/problem+json', ...problem.headers })
  response.end(JSON.stringify(problem.document()))
}

function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error
  if (error instanceof EngineError) return new Unavailable('The container engine does not answer', error)
  return new Problem(500, 'internal', 'Internal error')
}
