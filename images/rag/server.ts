import { createHash, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { Bodies } from './bodies.ts'
import { problems, StoreError } from './errors.ts'
import { type Route, routeOf } from './routes.ts'
import type { Store } from './store.ts'

export interface Tls {
  /** PEM. */
  cert: string
  key: string
}

export interface ServerSettings {
  host: string
  /** 0: any that is free. */
  port: number
  /** The path of a Unix socket whose callers need no token. Null: there is none. */
  socket: string | null
  token: string
  /** Null: plain HTTP, for this machine alone. */
  tls: Tls | null
  mostBodyBytes: number
  /** Told of errors that are not the caller's. It must not write the error's message, which may quote a text. */
  onFault: (route: string, error: unknown) => void
}

export interface StoreServer {
  port: number
  /** New secrets, for requests and connections that come from now on. */
  renew(secrets: { token: string; tls: Tls | null }): void
  /** Ends after the requests that are under way; cuts those that take longer than `graceMs`. */
  close(graceMs: number): Promise<void>
}

const options = {
  headersTimeout: 20_000,
  /** For all of a request: a large document on a slow connection. */
  requestTimeout: 300_000,
  keepAliveTimeout: 65_000,
}
const idleEveryMs = 50
const leastTls = 'TLSv1.2'

/** Serves the store to callers with the token, and to those of the socket. Rejects if it cannot listen. */
export async function serve(store: Store, settings: ServerSettings): Promise<StoreServer> {
  const bodies = new Bodies(settings.mostBodyBytes)
  let token = digest(settings.token)
  const server = settings.tls
    ? createSecureServer({ ...options, ...settings.tls, minVersion: leastTls })
    : createServer(options)
  const local = settings.socket === null ? null : createServer(options)
  const underWay = new Set<Promise<void>>()
  const answers =
    (isCaller: (request: IncomingMessage) => boolean) =>
    (request: IncomingMessage, response: ServerResponse) => {
      const call = answer(request, response, isCaller)
      underWay.add(call)
      void call.finally(() => underWay.delete(call))
    }
  server.on(
    'request',
    answers((request) => timingSafeEqual(digest(bearerOf(request)), token)),
  )
  local?.on(
    'request',
    answers(() => true),
  )
  server.listen(settings.port, settings.host)
  await once(server, 'listening')
  if (local && settings.socket !== null) await listenAt(local, settings.socket)

  async function answer(
    request: IncomingMessage,
    response: ServerResponse,
    isCaller: (request: IncomingMessage) => boolean,
  ): Promise<void> {
    response.on('error', () => {}) // a caller that is gone
    const [pathname = '/', query] = (request.url ?? '/').split('?')
    let route: Route | null = null
    try {
      // A caller without the token does not learn what is served, beside `health`.
      if (!isCaller(request) && pathname !== '/health')
        throw new StoreError('unauthenticated', 'This needs the bearer token of the store')
      const found = routeOf(request.method ?? '', pathname)
      route = found.route
      const call = { names: found.names, query: new URLSearchParams(query), body: () => bodies.read(request) }
      const result = await route.handle(store, call)
      send(response, result === null ? 204 : 200, 'application/json', result)
    } catch (error) {
      if (!(error instanceof StoreError))
        settings.onFault(
          route ? `${route.method} /${route.path.map((piece) => piece ?? '*').join('/')}` : '',
          error,
        )
      refuse(
        response,
        error instanceof StoreError ? error : new StoreError('internal', 'The store has failed'),
      )
    } finally {
      bodies.release(request)
    }
  }

  return {
    port: (server.address() as AddressInfo).port,
    renew(secrets) {
      if (secrets.tls && 'setSecureContext' in server)
        server.setSecureContext({ ...secrets.tls, minVersion: leastTls })
      token = digest(secrets.token)
    },
    async close(graceMs) {
      await Promise.all([server, ...(local ? [local] : [])].map((one) => closeServer(one, graceMs)))
      await Promise.all(underWay)
    },
  }
}

/** For this process's user alone. What a process that was killed has left there is replaced. */
async function listenAt(server: Server, path: string): Promise<void> {
  rmSync(path, { force: true })
  server.listen(path)
  await once(server, 'listening')
  chmodSync(path, 0o600)
}

/** Of equal length for all texts, as `timingSafeEqual` needs it. */
const digest = (text: string): Buffer => createHash('sha256').update(text).digest()

const bearerOf = ({ headers }: IncomingMessage): string =>
  /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1] ?? ''

function send(response: ServerResponse, status: number, type: string, body: object | null): void {
  if (response.destroyed) return
  response.statusCode = status
  response.setHeader('cache-control', 'no-store')
  if (body === null) return void response.end()
  response.setHeader('content-type', type)
  response.end(JSON.stringify(body))
}

/** RFC 9457, as the platform's own refusals. */
function refuse(response: ServerResponse, { code, message, pointer, status }: StoreError): void {
  if (code === 'unauthenticated') response.setHeader('www-authenticate', 'Bearer realm="keelson"')
  if (code === 'unavailable') response.setHeader('retry-after', '2')
  send(response, status, 'application/problem+json', {
    type: `urn:keelson:problem:${code}`,
    title: problems[code][1],
    status,
    code,
    detail: message,
    ...(pointer === null ? {} : { errors: [{ pointer, message }] }),
  })
}

async function closeServer(server: Server, graceMs: number): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  // A connection that is kept becomes idle when its answer is written, and would hold the server open.
  const tidy = setInterval(() => server.closeIdleConnections(), idleEveryMs)
  const cut = setTimeout(() => server.closeAllConnections(), graceMs)
  await closed
  clearInterval(tidy)
  clearTimeout(cut)
}
