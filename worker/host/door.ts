import { once } from 'node:events'
import { chmod, mkdir, rm } from 'node:fs/promises'
import { Agent, createServer, type IncomingMessage, request as ask, type ServerResponse } from 'node:http'
import { Agent as TlsAgent, request as askByTls } from 'node:https'
import { connect, isIP, type Socket } from 'node:net'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { connect as connectByTls, TLSSocket } from 'node:tls'
import { readRest } from '../../lib/early-answers.ts'
import type { Logger } from '../../lib/log.ts'
import { callKeyHeader } from '../../lib/runner-protocol.ts'

// The door of a runner: a socket in its container, which has no network. It leads to three places, and no request says
// where they are: CONNECT to the gateway, as a worker of Temporal asks a proxy, requests to the runner's own part of the
// internal API, and calls of models to the gateway for models. What comes through the door may be hostile.

/** Where doors lead. */
export interface Outside {
  gatewayUrl: string
  /** The authorities of the gateway's certificate, PEM, read for each connection; null: the system's. */
  gatewayAuthorities: () => string | null
  apiUrl: string
  /** Of the gateway for models. */
  modelsUrl: string
}

/** The name of the socket in its folder. */
export const doorName = 'door.sock'

const methods = ['GET', 'PUT', 'POST']
/** What a runner calls of the gateway for models. */
const modelPaths = ['/v1/chat/completions', '/v1/messages']

/** Those of all requests, and a worker's connection to the gateway, of which it has a second one while it reconnects. */
const socketsAtOnce = 64
/** To each of the two others. A runner has at most 32 nodes under way. */
const requestsAtOnce = { api: 8, models: 32 }
/** Of the headers of a request: a token has some 400 bytes. */
const headerBytes = 8 * 1024
const connectsWithinMs = 10_000
/** Of a request without a byte. A model may think for minutes; longer than the gateway's own limit, by default. */
const quietMs = { api: 60_000, models: 960_000 }

export interface Door {
  /** The folder stays: it may be mounted in a container. */
  close(): Promise<void>
}

/** Opens the door of a runner in this folder, and replaces what is left of an earlier one. */
export async function openDoor(
  { folder, runnerId }: { folder: string; runnerId: string },
  outside: Outside,
  log: Logger,
): Promise<Door> {
  const gateway = authorityOf(outside.gatewayUrl)
  const isOwn = ownPath(runnerId)
  const ways = { api: wayTo('api', outside.apiUrl), models: wayTo('models', outside.modelsUrl) }
  const tunnels = new Set<Socket>()
  const wayOf = (request: IncomingMessage): Way | null => {
    if (isOwn(request)) return ways.api
    return request.method === 'POST' && modelPaths.includes(request.url ?? '') ? ways.models : null
  }

  const server = createServer({
    maxHeaderSize: headerBytes,
    headersTimeout: 10_000,
    keepAliveTimeout: 50_000,
  })
  server.maxConnections = socketsAtOnce
  server.setTimeout(quietMs.api)

  server.on('request', (request, response) => {
    const way = wayOf(request)
    if (!way || way.requests >= way.atOnce) {
      void refuse(request, response, way ? 503 : 404)
      return
    }
    way.requests++
    const { socket } = request
    socket.setTimeout(way.quietMs)
    pass(way, request, response)
      .catch(async (err: unknown) => {
        log.debug({ err, runner_id: runnerId }, 'a request of a runner is not passed on')
        if (response.headersSent) response.destroy()
        else await refuse(request, response, 502)
      })
      .finally(() => {
        way.requests--
        socket.setTimeout(quietMs.api)
      })
  })

  server.on('connect', (request, socket: Socket, head) => {
    socket.setTimeout(0) // a poll is quiet for a minute
    socket.on('error', () => {}) // it closes then
    if (request.url !== gateway) {
      socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n')
      return
    }
    tunnels.add(socket.once('close', () => tunnels.delete(socket)))
    tunnel(socket, head, () => connectTo(outside)).catch((err: unknown) => {
      log.debug({ err, runner_id: runnerId }, 'a runner is not connected to the gateway')
      if (socket.writable) socket.end('HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n')
    })
  })

  await mkdir(folder, { recursive: true, mode: 0o755 })
  const path = join(folder, doorName)
  await rm(path, { force: true })
  server.listen(path)
  await once(server, 'listening')
  // The runner is none of this machine's users. The folder is in its container alone.
  await chmod(path, 0o666)

  return {
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      for (const socket of tunnels) socket.destroy()
      await closed
      for (const { agent } of Object.values(ways)) agent.destroy()
    },
  }
}

/**
 * Whether a request is to the runner's own part of the internal API. Ids and names have no dots and no escapes there, so no
 * path leads out of it, by whatever parser.
 */
function ownPath(runnerId: string): (request: IncomingMessage) => boolean {
  const path = new RegExp(`^/internal/v1/runners/${runnerId}(/[A-Za-z0-9_-]+)+(\\?[A-Za-z0-9_=&-]*)?$`)
  return ({ method = '', url = '' }) => methods.includes(method) && path.test(url)
}

/** `host:port`, as a worker names it in CONNECT. */
function authorityOf(url: string): string {
  const { hostname, port, protocol } = new URL(url)
  return `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`
}

/** A connection to the gateway. */
function connectTo({ gatewayUrl, gatewayAuthorities }: Outside): Socket {
  const { protocol, hostname, port } = new URL(gatewayUrl)
  const host = hostname.replace(/^\[|\]$/g, '')
  if (protocol === 'http:') return connect({ host, port: Number(port || 80) })
  const ca = gatewayAuthorities()
  return connectByTls({
    host,
    port: Number(port || 443),
    ALPNProtocols: ['h2'],
    ...(isIP(host) ? {} : { servername: host }),
    ...(ca === null ? {} : { ca }),
  })
}

/** Joins a runner's socket with the other end. Rejects if there is none within the time. */
async function tunnel(socket: Socket, head: Buffer, open: () => Socket): Promise<void> {
  const far = open()
  far.on('error', () => {}) // it closes then
  socket.once('close', () => far.destroy())
  const signal = AbortSignal.timeout(connectsWithinMs)
  await once(far, far instanceof TLSSocket ? 'secureConnect' : 'connect', { signal }).catch(
    (cause: unknown) => {
      far.destroy()
      throw cause
    },
  )
  if (far.destroyed || socket.destroyed) {
    for (const one of [far, socket]) one.destroy()
    return
  }
  far.once('close', () => socket.destroy())
  socket.write('HTTP/1.1 200 OK\r\n\r\n')
  far.write(head)
  socket.pipe(far)
  far.pipe(socket)
}

async function refuse(request: IncomingMessage, response: ServerResponse, status: number): Promise<void> {
  response.writeHead(status).flushHeaders()
  await readRest(request)
  response.end()
}

/** To one of the two places that are asked by HTTP. */
interface Way {
  origin: URL
  agent: Agent
  quietMs: number
  atOnce: number
  /** Those that are under way. */
  requests: number
}

function wayTo(place: 'api' | 'models', url: string): Way {
  const origin = new URL(url)
  const atOnce = requestsAtOnce[place]
  const options = { keepAlive: true, maxSockets: atOnce }
  const agent = origin.protocol === 'https:' ? new TlsAgent(options) : new Agent(options)
  return { origin, agent, quietMs: quietMs[place], atOnce, requests: 0 }
}

/** Makes a request anew from what a runner may say, and gives its answer back. */
async function pass(
  { origin, agent, quietMs: timeout }: Way,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController()
  response.once('close', () => gone.abort())
  const asked = (origin.protocol === 'https:' ? askByTls : ask)({
    hostname: origin.hostname.replace(/^\[|\]$/g, ''),
    port: origin.port,
    method: request.method,
    path: request.url,
    headers: only(request, ...passedOn),
    agent,
    signal: gone.signal,
    timeout,
  })
  asked.on('error', () => {}) // also after the answer, if the API does not read on
  asked.once('timeout', () => asked.destroy(new Error('There is no answer')))
  request.pipe(asked)
  const [answer] = (await once(asked, 'response')) as [IncomingMessage]
  response.writeHead(answer.statusCode ?? 502, only(answer, 'content-type', 'content-length', 'retry-after'))
  await pipeline(answer, response, { end: false })
  await readRest(request)
  response.end()
}

/** Of a request’s headers. The last one names a call of a model. */
const passedOn = ['authorization', 'content-type', 'content-length', 'transfer-encoding', callKeyHeader]

function only({ headers }: IncomingMessage, ...names: string[]): Record<string, string> {
  return Object.fromEntries(
    names.flatMap((name) => (typeof headers[name] === 'string' ? [[name, headers[name]]] : [])),
  )
}
