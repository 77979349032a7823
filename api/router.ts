import express, { type Express, type Request, type Response, Router } from 'express'
import { newId } from '../lib/ids.ts'
import { addLogContext, type Logger, withLogContext } from '../lib/log.ts'
import { metrics } from '../lib/metrics.ts'
import { NotFound, Problem } from '../lib/problem.ts'
import { asksForWebSocket, type WebSockets } from '../lib/websockets.ts'
import { unlessAway } from '../models/database-away.ts'
import { once } from '../models/idempotency.ts'
import { actorOf, audit, type End, isAudited, useAuditLog } from './audit.ts'
import { authenticate, authenticateHost, authenticateRunner, authorize } from './authenticate.ts'
import { type Cap, type Lasting, makeCaps } from './caps.ts'
import { confine } from './confined.ts'
import { jsonReader, readerOf, readInput, readParams, readQuery } from './input.ts'
import { type Limiter, makeLimiter, makeSharedLimiter } from './limits.ts'
import {
  type AcceptedAnswer,
  type Caller,
  isParty,
  type PartyCaller,
  type Created,
  isSocket,
  isStream,
  type Operation,
  statusOf,
  successOf,
} from './operation.ts'
import { DatabaseUnavailable, problemHandler, toProblem } from './problems.ts'
import { etagOf, revisionsIn } from './revisions.ts'
import { attend, checkOrigin, type ServeSocket } from './sockets.ts'
import { makeShared, unlessRevoked } from './still-allowed.ts'

export interface RouterSettings {
  KEELSON_API_URL: string
  KEELSON_CORS_ORIGINS: string[]
  KEELSON_BODY_LIMIT_KIB: number
  KEELSON_RATE_PER_SEC: number
  KEELSON_OPEN_PER_TENANT: number
}

// Many callers may share one address: an office, or all clients of a proxy.
const callersPerAddress = 10

/** Serves the operations: carries out what each declares. */
export function serve(
  app: Express,
  operations: Operation[],
  settings: RouterSettings,
  sockets: WebSockets,
  log: Logger,
): void {
  useAuditLog(log)
  app.disable('x-powered-by')
  app.set('query parser', 'simple')
  app.set('etag', false)
  const readForm = express.urlencoded({ limit: `${settings.KEELSON_BODY_LIMIT_KIB}kb`, extended: false })
  const readJson = jsonReader(settings.KEELSON_BODY_LIMIT_KIB)
  const limits = {
    address: makeLimiter(settings.KEELSON_RATE_PER_SEC * callersPerAddress, 1),
    caller: makeLimiter(settings.KEELSON_RATE_PER_SEC, 1),
  }
  const caps = makeCaps(settings.KEELSON_OPEN_PER_TENANT)

  const noteProxy = makeProxyNotice(log)
  app.use((request, response, next) => {
    noteProxy(request)
    const requestId = newId()
    response.locals['requestId'] = requestId
    response.set('X-Request-Id', requestId)
    withLogContext({ request_id: requestId }, () => {
      if (log.isLevelEnabled('debug')) logEnd(request, response, log)
      next()
    })
  })
  // One router per collection: otherwise each request would search one list of hundreds of operations.
  for (const [prefix, group] of byPrefix(operations)) {
    const router = Router({ caseSensitive: true, strict: true })
    for (const operation of group) {
      const path = pathBelow(prefix, operation.path)
      const readBody = operation.form ? readForm : (readerOf(operation) ?? readJson)
      const handle = handlerOf(operation, readBody, limits, caps, settings, sockets)
      router[operation.method.toLowerCase() as 'get'](path, (request, response, next) =>
        request.method === 'HEAD' && !methodsOf(operation).includes('HEAD')
          ? next()
          : handle(request, response),
      )
    }
    refuseOtherMethods(router, prefix, group)
    app.use(prefix, router)
  }
  app.use(() => {
    throw new NotFound('path')
  })
  app.use(problemHandler(log))
}

const callersNow = makeShared<Caller | PartyCaller | null>()

function handlerOf(
  operation: Operation,
  readBody: express.RequestHandler,
  limits: Record<'address' | 'caller', Limiter>,
  caps: Record<Lasting, Cap>,
  settings: RouterSettings,
  sockets: WebSockets,
): (request: Request, response: Response) => Promise<void> {
  const { permission, method } = operation
  const success = successOf(operation)
  const issuer = settings.KEELSON_API_URL
  const lasting = lastingOf(operation)
  // What is public may be kept by anybody; all else may have a secret or a person in it.
  const isPublic = method === 'GET' && typeof permission === 'object' && permission.for === 'anybody'
  const limitAttempts = operation.attempts_per_min
    ? makeSharedLimiter(`${method} ${operation.path}`, operation.attempts_per_min, 60)
    : null

  const handle = async (request: Request, response: Response): Promise<void> => {
    if (!isPublic) response.set('Cache-Control', 'no-store')
    const measured = metrics.httpRequests.startTimer({ operation: `${method} ${operation.path}` })
    response.once('close', () => measured({ status: response.statusCode }))
    const address = request.ip ?? ''
    // Limit by address before authentication: a caller can invent a new token for each request.
    await limits.address(address, response)
    if (!operation.spares) await limitAttempts?.(address, response)
    const caller = await unlessAway(() => callerOf(operation, request, issuer))
    if (caller) await limits.caller(caller.id, response)
    const owner = caller && isParty(caller) ? null : caller
    if (owner) addLogContext({ tenant_id: owner.tenant_id })
    // The response of a WebSocket never closes: its connection does, which serves nothing else.
    const isHandshake = lasting === 'socket' && asksForWebSocket(request)
    if (owner && lasting) caps[lasting](owner.tenant_id, isHandshake ? request.socket : response)
    // Audit before the answer is sent, so that no answer goes out without an event.
    const end = async (how: End) => {
      if (!owner || !isAudited(operation)) return
      const params = { ...request.params }
      await audit({ actor: actorOf(owner), operation, request, response, address, params }, how)
    }
    const stillAllowed = async () => {
      const ask = () => callerOf(operation, request, issuer)
      const now = await (owner ? callersNow(owner.token, ask) : ask())
      if (now && !isParty(now)) await admit(now, request)
    }
    let answer: unknown
    try {
      const answering = answerTo(request, response, caller, address)
      // What a change has begun it also ends.
      answer = await (owner && method === 'GET' && !isSocket(success.body)
        ? unlessRevoked(answering, response, stillAllowed)
        : answering)
    } catch (error) {
      const problem = toProblem(error)
      const stored = end({ status: problem.status, problem })
      // The event would wait for the same database, and goes to the log if that stays away.
      if (!(problem instanceof DatabaseUnavailable)) await stored
      throw error
    }
    const status = statusOf(operation, answer)
    await end({ status, answer })
    if (operation.awaits) {
      const asked = { caller: caller as never, query: readQuery(operation, request), response }
      answer = await unlessRevoked(operation.awaits(answer as never, asked as never), response, stillAllowed)
    }
    const etag = operation.revised ? etagOf(answer) : null
    if (etag !== null) response.set('ETag', etag)
    else delete request.headers['if-none-match'] // `*` would be met, and there is nothing to compare
    if (isSocket(success.body)) {
      const headers = { 'X-Request-Id': String(response.locals['requestId']) }
      const serveSocket = attend(answer as ServeSocket, stillAllowed)
      sockets.accept(request, response, serveSocket, headers)
    } else if (!isStream(success.body)) send(response, status, answer)
  }

  // What lasts goes on without the database, once its caller is known.
  return lasting ? handle : (request, response) => unlessAway(() => handle(request, response))

  /** Throws unless the caller may call the operation with these parameters. */
  async function admit(owner: Caller, { params }: Request): Promise<void> {
    authorize(permission, owner)
    if (owner.kind === 'deploy_server') await confine(owner, operation, params)
  }

  async function answerTo(
    request: Request,
    response: Response,
    caller: Caller | PartyCaller | null,
    address: string,
  ): Promise<unknown> {
    const owner = caller && isParty(caller) ? null : caller
    if (owner) await admit(owner, request)
    if (isSocket(success.body)) checkOrigin(request, settings)
    const params = readParams(operation, request)
    const query = readQuery(operation, request)
    const reading = readInput(operation, request, response, readBody)
    // Counted before the answer to a body that is refused, too.
    if (operation.spares && !(await reading.then(operation.spares, () => false)))
      await limitAttempts?.(address, response)
    const body = await reading

    const http = { request, response }
    const revisions = operation.revised && method !== 'GET' ? revisionsIn(request.get('If-Match')) : null
    const input = { caller: caller as never, params, query, body, address, revisions, http } as Parameters<
      Operation['handle']
    >[0]
    const key = method === 'POST' ? request.get('Idempotency-Key') : undefined
    if (!key || !owner) return operation.handle(input)
    if (operation.takes_no_key) throw invalid('The operation takes no Idempotency-Key')
    const asked = [method, request.originalUrl, body ?? null, ...(revisions ? [revisions] : [])]
    return once(owner, checkKey(key), asked, () => operation.handle(input))
  }
}

function lastingOf(operation: Operation): Lasting | null {
  const { body } = successOf(operation)
  if (operation.lasts) return operation.lasts
  if (isSocket(body)) return 'socket'
  return isStream(body) ? 'stream' : null
}

async function callerOf(
  { permission }: Operation,
  request: Request,
  issuer: string,
): Promise<Caller | PartyCaller | null> {
  if (typeof permission === 'object' && permission.for === 'anybody') return null
  if (typeof permission === 'object' && permission.for === 'hosts') return authenticateHost(request)
  if (typeof permission === 'object' && permission.for === 'runners') return authenticateRunner(request)
  return authenticate(request, issuer)
}

function checkKey(key: string): string {
  if (/^[\x21-\x7e]{1,255}$/.test(key)) return key
  throw invalid('Idempotency-Key must be 1 to 255 visible ASCII characters')
}

const invalid = (detail: string): Problem =>
  new Problem(400, 'invalid_input', 'The request is invalid', detail)

function send(response: Response, status: number, answer: unknown): void {
  response.status(status)
  if (status === 204) {
    response.end()
    return
  }
  if (status === 200) {
    response.json(answer)
    return
  }
  if (status === 201) response.set('Location', (answer as Created<unknown>).location)
  if (status === 202) {
    response.set(
      'Operation-Location',
      `/api/v1/operations/${(answer as AcceptedAnswer<unknown>).operation_id}`,
    )
  }
  const { body } = answer as { body: unknown }
  // Null in a stored answer that is replayed.
  if (body === undefined || body === null) response.end()
  else response.json(body)
}

function byPrefix(operations: Operation[]): Map<string, Operation[]> {
  return Map.groupBy(
    operations,
    ({ path }) => /^\/(?:api\/v1|internal\/v1|[^/]+)(?:\/[^/{]+)?/.exec(path)?.[0] ?? '/',
  )
}

/**
 * Answers OPTIONS for a known path with its methods, and any other method that it has not with 405 and the same. Every
 * GET has its HEAD, but those that open what lasts.
 */
function refuseOtherMethods(router: Router, prefix: string, group: Operation[]): void {
  // `/connectors/import` before `/connectors/{id}`, which matches it too.
  const literalFirst = group.toSorted((a, b) => a.path.split('{').length - b.path.split('{').length)
  for (const [path, same] of Map.groupBy(literalFirst, (operation) => operation.path)) {
    const allow = [...same.flatMap(methodsOf), 'OPTIONS'].join(', ')
    router.all(pathBelow(prefix, path), ({ method }, response) => {
      if (method === 'OPTIONS') {
        response.set('Allow', allow).status(204).end()
        return
      }
      throw new Problem(405, 'method_not_allowed', 'Method not allowed', `Allowed: ${allow}`, {
        headers: { Allow: allow },
      })
    })
  }
}

function methodsOf(operation: Operation): string[] {
  const { body } = successOf(operation)
  const lasts = isStream(body) || isSocket(body)
  return operation.method === 'GET' && !lasts ? ['GET', 'HEAD'] : [operation.method]
}

const pathBelow = (prefix: string, path: string): string =>
  path.slice(prefix.length).replaceAll(/\{(\w+)\}/g, ':$1') || '/'

/** Warns once of a proxy that nobody trusts: all its clients then count as one address, against every limit. */
function makeProxyNotice(log: Logger): (request: Request) => void {
  let isNoted = false
  return ({ headers, ip, socket }) => {
    if (isNoted || headers['x-forwarded-for'] === undefined || ip !== socket.remoteAddress) return
    isNoted = true
    log.warn(
      { address: ip },
      'X-Forwarded-For comes from an address that is not in KEELSON_TRUSTED_PROXIES: all clients behind it count as one',
    )
  }
}

function logEnd(request: Request, response: Response, log: Logger): void {
  const began = performance.now()
  response.once('finish', () =>
    log.debug(
      {
        method: request.method,
        path: request.path,
        status: response.statusCode,
        ms: Math.round(performance.now() - began),
      },
      'request',
    ),
  )
}
