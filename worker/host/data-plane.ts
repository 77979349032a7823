import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import type { LogEntry, LogOptions } from '../../drivers/containers.ts'
import { EngineError, InstanceNotFound, MachineDiskFull } from '../../drivers/errors.ts'
import type { InstanceEngine } from '../../drivers/instances.ts'
import type { LoadBalancerEngine } from '../../drivers/load-balancers.ts'
import type { LogFiles } from '../../drivers/log-files.ts'
import type { TaskLogs, Uploads } from '../../drivers/swarms.ts'
import { listenAddress } from '../../lib/addresses.ts'
import {
  planeSubject,
  type PlaneVerb,
  registrySubject,
  serviceSubject,
  storeSubject,
  uploadSubject,
  wantedSubject,
} from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { pinnedTls } from '../../lib/pinned-tls.ts'
import { InvalidInput, NotFound, Problem, Unavailable, UpgradeRequired } from '../../lib/problem.ts'
import type { SelfSigned } from '../../lib/self-signed.ts'
import { asksForWebSocket, makeWebSockets } from '../../lib/websockets.ts'
import { ConsoleQuery, type Consoles, makeConsoles } from './consoles.ts'
import { lastHeader, pushesHeader } from '../../lib/registry-relay.ts'
import { sendFilesLeft } from './files-left.ts'
import type { PlaneTokens } from './plane-tokens.ts'
import type { RegistryRelay } from './registry-relay.ts'
import { isStoreMethod, type StoreRelay } from './store-relay.ts'

// Node's default keep-alive interval is two hours, so a vanished reader would be served that long.
const probeEveryMs = 30_000
const handshakeTimeoutMs = 10_000

interface Parts {
  engine: Pick<InstanceEngine, 'exec' | 'console'> & Outputs
  files: LogFiles
  tokens: PlaneTokens
  /** The counters of load balancers. */
  balancers?: Pick<LoadBalancerEngine, 'samples'> | null
  /** The output of services in machines. */
  services?: TaskLogs
  /** Archives that come to machines in parts. */
  uploads?: Pick<Uploads, 'offset' | 'append'>
  /** Passes requests on to the registries in machines. */
  registries?: RegistryRelay
  /** Passes requests on to the stores of tenants' documents. */
  stores?: StoreRelay
  /** Makes a part of the host apply what is wanted, by name. Does not wait. False if there is no such part. */
  applyWanted?: (part: string) => boolean
  log: Logger
}

/** Whose output this host has. */
type Outputs = Pick<InstanceEngine, 'logs'> & { find(id: string): Promise<object | null> }

export interface DataPlane {
  port: number
  /** Ends all consoles, and takes no others. */
  closeConsoles(): Promise<void>
  /** Closes all streams and consoles. */
  close(): Promise<void>
}

/**
 * Serves logs and consoles of this host's instances, logs and counters of its load balancers, registries, uploads and stores
 * of documents, by HTTPS. Takes news of what is wanted. Only the platform connects, with a token, and knows the server by its
 * certificate.
 */
export async function serveDataPlane(
  parts: Parts,
  { address, port, tls }: { address: string; port: number; tls: SelfSigned },
): Promise<DataPlane> {
  const sockets = makeWebSockets(() => true)
  const consoles = makeConsoles({ engine: parts.engine, log: parts.log, sockets })
  const handler = (request: IncomingMessage, response: ServerResponse): void => {
    answer({ ...parts, consoles }, request, response).catch((error: unknown) =>
      refuse(parts.log, error, response),
    )
  }
  const server = createServer(
    {
      ...pinnedTls,
      cert: tls.certificate,
      key: tls.key,
      handshakeTimeout: handshakeTimeoutMs,
      keepAlive: true,
      keepAliveInitialDelay: probeEveryMs,
      // The layers of an image may take long: only the time for headers is limited.
      requestTimeout: 0,
      ...sockets.serverOptions,
    },
    handler,
  )
  sockets.attach(server, handler)
  const connections = new Set<Socket>()
  server.on('connection', (connection: Socket) => {
    connections.add(connection)
    connection.once('close', () => connections.delete(connection))
  })
  server.listen(port, listenAddress(address))
  await once(server, 'listening')
  const bound = server.address()
  return {
    port: typeof bound === 'object' && bound ? bound.port : port,
    closeConsoles: () => consoles.close(),
    async close() {
      const closed = once(server, 'close') // it may come while consoles end
      server.close()
      server.closeAllConnections()
      await consoles.close()
      sockets.terminate()
      for (const connection of connections) connection.destroy() // in their handshake
      await closed
    },
  }
}

async function answer(
  {
    engine,
    files,
    tokens,
    consoles,
    applyWanted,
    balancers,
    services,
    registries,
    stores,
    uploads,
  }: Parts & { consoles: Consoles },
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const url = new URL(request.url ?? '/', 'http://host')
  const [, part] = /^\/wanted\/([a-z_]{1,32})$/.exec(url.pathname) ?? []
  if (request.method === 'POST' && part !== undefined) {
    await tokens.redeem(request, wantedSubject(part))
    if (!applyWanted?.(part)) throw new NotFound('part of the host')
    response.writeHead(204).end()
    return
  }
  const [, holder, deployServerId, path] =
    /^\/machines\/([\w-]{1,64})\/registry\/([\w-]{1,64})(\/v2\/.*)$/.exec(url.pathname) ?? []
  if (registries && holder !== undefined && deployServerId !== undefined) {
    await tokens.redeem(request, registrySubject(holder, deployServerId))
    const { [pushesHeader]: image, [lastHeader]: last } = request.headers
    const pushes = typeof image === 'string' ? { image, last: last === 'true' } : null
    const where = { machineId: holder, deployServerId }
    return registries(where, { path: `${path}${url.search}`, pushes }, request, response)
  }
  const [, receiver, archive] = /^\/machines\/([\w-]{1,64})\/uploads\/([\w-]{1,64})$/.exec(url.pathname) ?? []
  if (uploads && receiver !== undefined && archive !== undefined) {
    await tokens.redeem(request, uploadSubject(receiver, archive))
    const query = Object.fromEntries(url.searchParams)
    const offset =
      request.method === 'PATCH'
        ? await uploads.append(receiver, archive, { ...partOf(query), bytes: request })
        : await uploads.offset(receiver, archive)
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ offset }))
    return
  }
  const [, storeId, asked] = /^\/instances\/([\w-]{1,64})\/store(\/.*)$/.exec(url.pathname) ?? []
  if (stores && storeId !== undefined && isStoreMethod(request.method)) {
    await tokens.redeem(request, storeSubject(storeId))
    return stores(storeId, `${asked}${url.search}`, request, response)
  }
  if (request.method !== 'GET') throw new NotFound('operation')
  if (url.pathname === '/healthz') return void response.end('ok\n')

  const [, machine, service] =
    /^\/machines\/([\w-]{1,64})\/services\/([\w-]{1,64})\/logs$/.exec(url.pathname) ?? []
  if (services && machine !== undefined && service !== undefined) {
    await tokens.redeem(request, serviceSubject(machine, service))
    const query = read(LogQuery, Object.fromEntries(url.searchParams))
    await sendEntries((options) => services(machine, service, options), query, response)
    return
  }

  const [, id, verb] =
    /^\/instances\/([\w-]{1,64})\/(logs|archive|console|counters)$/.exec(url.pathname) ?? []
  if (id === undefined) throw new NotFound('operation')
  await tokens.redeem(request, planeSubject(id, verb as PlaneVerb))
  if (verb === 'logs') {
    await sendLogs(engine, id, read(LogQuery, Object.fromEntries(url.searchParams)), response)
    return
  }
  if (verb === 'archive') {
    await sendFilesLeft(files, id, response)
    return
  }
  if (verb === 'counters') {
    const samples = await balancers?.samples(id)
    if (!samples) throw new NotFound('load balancer')
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(samples))
    return
  }
  if (!asksForWebSocket(request)) throw new UpgradeRequired()
  const { command: _, ...size } = Object.fromEntries(url.searchParams)
  const query = read(ConsoleQuery, { ...size, command: url.searchParams.getAll('command') })
  await consoles.open(id, query, request, response)
}

const LogQuery = z.strictObject({
  lines: z.coerce.number().int().min(0).optional(),
  since: z.iso.datetime({ offset: true }).optional(),
  follow: z.enum(['true', 'false']).default('false'),
})

const PartQuery = z.strictObject({
  offset: z.coerce.number().int().min(0),
  at_most: z.coerce.number().int().min(0),
})
function partOf(query: object): { offset: number; atMost: number } {
  const { offset, at_most: most } = read(PartQuery, query)
  return { offset, atMost: most }
}

function read<S extends z.ZodType>(schema: S, params: object): z.output<S> {
  const { data, error } = schema.safeParse(params)
  if (!error) return data
  const errors = error.issues.map(({ path, message }) => ({ pointer: path.join('.'), message }))
  throw new InvalidInput(400, errors)
}

async function sendLogs(
  engine: Outputs,
  id: string,
  query: z.infer<typeof LogQuery>,
  response: ServerResponse,
): Promise<void> {
  // Check before the headers are sent: an instance without output sends nothing.
  if (!(await engine.find(id))) throw new NotFound('instance')
  await sendEntries(async (options) => engine.logs(id, options), query, response)
}

async function sendEntries(
  open: (options: LogOptions) => Promise<AsyncIterable<LogEntry>>,
  query: z.infer<typeof LogQuery>,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController()
  response.on('close', () => gone.abort())
  const entries = await open({ ...logOptions(query), signal: gone.signal })
  response.writeHead(200, { 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' })
  response.flushHeaders()
  await pipeline(Readable.from(jsonLines(entries)), response)
}

function logOptions({ lines, since, follow }: z.infer<typeof LogQuery>): LogOptions {
  const from = since === undefined ? {} : { since }
  if (follow === 'false') return { ...from, ...(lines === undefined ? {} : { lines }) }
  if (lines !== 0) return { ...from, follow: true, ...(lines === undefined ? {} : { lines }) }
  // An engine reads its log after the answer has begun: a count of 0 would leave out the lines that are written in between.
  const now = new Date().toISOString()
  return { since: since !== undefined && Date.parse(since) > Date.now() ? since : now, follow: true }
}

async function* jsonLines(entries: AsyncIterable<LogEntry>): AsyncGenerator<string> {
  for await (const { time, stream, line } of entries) yield `${JSON.stringify({ time, stream, line })}\n`
}

function refuse(log: Logger, error: unknown, response: ServerResponse): void {
  if (response.headersSent) {
    // The reader or the engine is gone. Break the stream off, so that the reader notices.
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
  if (error instanceof MachineDiskFull) return new Problem(507, error.code, error.message)
  if (error instanceof InstanceNotFound) return new NotFound('instance')
  if (error instanceof EngineError)
    return new Unavailable('The engine of the instance does not answer', error)
  return new Problem(500, 'internal', 'Internal error')
}
