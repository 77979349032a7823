import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Settings } from '../../config.ts'
import { isLoopback } from '../../lib/addresses.ts'
import type { Logger } from '../../lib/log.ts'
import { metrics } from '../../lib/metrics.ts'
import { makeOutbound } from '../../lib/outbound.ts'
import { withTlsFiles } from '../../lib/tls-files.ts'
import { onReconnected } from '../../models/database.ts'
import { settleLostCalls } from '../../models/llm/lost-calls.ts'
import { restoreCalls } from '../../models/llm/metering.ts'
import type { PriceOf } from '../../models/llm/prices.ts'
import { carryOut, type CallContext } from './calls.ts'
import { CallRefused, type Dialect, endpointOf, errorBody } from './dialects.ts'
import { openOwnModels } from './own-models.ts'
import { makeSlots } from './slots.ts'

export type ModelGatewaySettings = Pick<
  Settings<'model-gateway'>,
  Extract<
    keyof Settings<'model-gateway'>,
    `KEELSON_MODELS_${string}` | `KEELSON_EMBEDDER${string}` | 'KEELSON_OUTBOUND_ALLOWED'
  >
>

export interface ModelGateway {
  port: number
  /** How many calls are under way. */
  open(): number
  close(): Promise<void>
}

const options = {
  headersTimeout: 20_000,
  /** For all of a request. */
  requestTimeout: 120_000,
  /** Longer than those that keep connections to it. */
  keepAliveTimeout: 65_000,
}
const sweepEveryMs = 10_000
/** Beyond this the calls that are under way are cut, and settled. */
const graceMs = 8_000
/** Beyond this the calls that MongoDB does not take are left to other gateways. */
const lastMs = 1_000

/**
 * Serves models to callers with a token of the platform. Rejects if it cannot listen, or would have to listen without
 * TLS where others can read along.
 */
export async function openModelGateway(
  settings: ModelGatewaySettings,
  priceOf: PriceOf,
  log: Logger,
): Promise<ModelGateway> {
  const outbound = makeOutbound({ allowed: settings.KEELSON_OUTBOUND_ALLOWED })
  const { KEELSON_EMBEDDERS: folders, KEELSON_EMBEDDER_THREADS: threads } = settings
  const own = await openOwnModels(folders, threads, log)
  const context: CallContext = {
    outbound,
    own,
    priceOf,
    slots: makeSlots(settings.KEELSON_MODELS_PER_CONNECTOR),
    log,
    mostBodyBytes: settings.KEELSON_MODELS_BODY_MIB * 1024 ** 2,
    callMs: settings.KEELSON_MODELS_CALL_SEC * 1000,
    quietMs: settings.KEELSON_MODELS_QUIET_SEC * 1000,
    underWay: new Set(),
    unrecorded: new Set(),
  }
  const calls = new Set<Promise<void>>()
  const server = listener(settings, log)
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const call = serve(context, request, response)
    calls.add(call)
    void call.finally(() => calls.delete(call))
  })
  server.listen(settings.KEELSON_MODELS_PORT, settings.KEELSON_MODELS_HOST)
  await once(server, 'listening')
  const sweeper = startSweeper(priceOf, log)
  const offReconnected = onReconnected(() => {
    // Whatever fails here is tried again before the next call, and when each of them ends.
    restoreCalls().catch((error: unknown) => log.warn({ err: error }, 'calls under way are not restored yet'))
  })

  return {
    port: (server.address() as AddressInfo).port,
    open: () => context.underWay.size,
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeIdleConnections()
      const cutAfter = (ms: number) => setTimeout(() => context.underWay.forEach((call) => call.abort()), ms)
      const cut = cutAfter(graceMs)
      await Promise.all(calls) // each is settled, unless MongoDB is away
      clearTimeout(cut)
      const left = cutAfter(lastMs)
      await Promise.all(context.unrecorded)
      clearTimeout(left)
      server.closeAllConnections()
      await closed
      await own.close()
      await sweeper.stop()
      offReconnected()
      await outbound.close()
    },
  }
}

async function serve(
  context: CallContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { pathname, search } = new URL(request.url ?? '/', 'http://gateway')
  if (pathname === '/healthz') return void response.end('ok')
  response.on('error', () => {}) // a caller that is gone
  const endpoint = pathname.startsWith('/v1/') ? endpointOf(request.method ?? '', pathname.slice(3)) : null
  const dialect = endpoint?.dialect ?? dialectIn(request)
  response.once('close', () =>
    metrics.modelCalls.inc({ endpoint: endpoint?.name ?? 'none', status: String(response.statusCode) }),
  )
  if (endpoint) return carryOut(context, { request, response, endpoint, dialect, search })
  const refused = new CallRefused(404, 'not_found', 'The gateway does not serve this')
  response.writeHead(404, { 'content-type': 'application/json' })
  response.end(JSON.stringify(errorBody(dialect, refused)))
}

/** Where a path is in both APIs: Anthropic's callers name its version. */
const dialectIn = ({ headers }: IncomingMessage): Dialect =>
  headers['anthropic-version'] === undefined ? 'openai' : 'anthropic'

/** Settles the calls of killed gateways. */
function startSweeper(priceOf: PriceOf, log: Logger): { stop(): Promise<void> } {
  let running: Promise<void> = Promise.resolve()
  const sweep = async () => {
    try {
      const count = await settleLostCalls(priceOf)
      if (count) log.warn({ count }, 'calls of a gateway that was killed are settled')
    } catch (error) {
      log.error({ err: error }, 'lost calls could not be settled')
    }
  }
  const timer = setInterval(() => {
    running = running.then(sweep)
  }, sweepEveryMs)
  return {
    async stop() {
      clearInterval(timer)
      await running
    },
  }
}

function listener(settings: ModelGatewaySettings, log: Logger): Server {
  const { KEELSON_MODELS_TLS_CERT_FILE: certFile, KEELSON_MODELS_TLS_KEY_FILE: keyFile } = settings
  if (certFile && keyFile)
    return withTlsFiles({ certFile, keyFile }, (tls) => createSecureServer({ ...options, ...tls }), log)
  if (certFile || keyFile)
    throw new Error('KEELSON_MODELS_TLS_CERT_FILE and KEELSON_MODELS_TLS_KEY_FILE go together')
  if (!isLoopback(settings.KEELSON_MODELS_HOST) && settings.KEELSON_MODELS_PLAINTEXT !== 'true')
    throw new Error(
      'The model gateway serves other machines by TLS: set KEELSON_MODELS_TLS_CERT_FILE and KEELSON_MODELS_TLS_KEY_FILE, or KEELSON_MODELS_PLAINTEXT if a proxy in front of it terminates TLS',
    )
  return createServer(options)
}
