import { once } from 'node:events'
import {
  createSecureServer,
  createServer,
  type Http2SecureServer,
  type Http2Server,
  type ServerHttp2Session,
} from 'node:http2'
import type { AddressInfo, Socket } from 'node:net'
import { Connection } from '@temporalio/client'
import type { Settings } from '../config.ts'
import { isLoopback } from '../lib/addresses.ts'
import type { Logger } from '../lib/log.ts'
import { metrics } from '../lib/metrics.ts'
import { nameOf, type Party } from '../lib/parties.ts'
import { EncryptingCodec } from '../lib/payload-codec.ts'
import { readKeyRing } from '../lib/seal.ts'
import { temporalConnection } from '../lib/temporal.ts'
import { withTlsFiles } from '../lib/tls-files.ts'
import { makeCallers, makeLimits } from './callers.ts'
import { CallRefused, serveCalls, status } from './grpc.ts'
import { findKey } from './keys.ts'
import { makeMethods } from './methods.ts'
import { makeSealing, type Sealing } from './sealing.ts'

export type GatewaySettings = Pick<
  Settings<'gateway'>,
  Extract<keyof Settings<'gateway'>, `KEELSON_${'GATEWAY' | 'TEMPORAL' | 'CODEC'}_${string}`>
>

export interface Gateway {
  port: number
  close(): Promise<void>
}

const options = {
  settings: { maxConcurrentStreams: 512, maxHeaderListSize: 16 * 1024 },
  maxSessionMemory: 32, // MiB
}
// Notices a party that has vanished.
const probeEveryMs = 15_000
const idleMs = 5 * 60_000
// Beyond this a call is cut: its party retries it.
const graceMs = 3_000
const mostSealings = 10_000

/**
 * Serves parties on behalf of Temporal: each polls its own queue and answers for the tasks it was given, and nothing else.
 * Rejects if it cannot listen, or would have to listen without TLS where others can read along.
 */
export async function openGateway(settings: GatewaySettings, log: Logger): Promise<Gateway> {
  const ring = readKeyRing(settings.KEELSON_CODEC_KEY_FILE)
  const codec = new EncryptingCodec({ ring })
  // Without retries: the party's worker retries, and should know what Temporal said.
  const connection = Connection.lazy({ ...temporalConnection(settings), interceptors: [] })
  const namespace = settings.KEELSON_TEMPORAL_NAMESPACE
  const methods = makeMethods({ connection, namespace, log })
  const callers = makeCallers(findKey)
  const limits = makeLimits()
  const stopping = new AbortController()
  const sealings = new Map<string, Sealing>()
  function sealingOf(party: Party): Sealing {
    const sealing = sealings.get(nameOf(party)) ?? makeSealing(ring, codec, party)
    if (sealings.size >= mostSealings) sealings.clear() // making one takes less than a millisecond
    sealings.set(nameOf(party), sealing)
    return sealing
  }

  const server = listener(settings, log)
  server.on('connection', (socket: Socket) => socket.setKeepAlive(true, probeEveryMs))
  const sessions = new Set<ServerHttp2Session>()
  server.on('session', (session: ServerHttp2Session) => {
    sessions.add(session.once('close', () => sessions.delete(session)))
    session.on('error', () => {}) // a party that is gone
    session.setTimeout(idleMs, () => session.close())
  })
  serveCalls(
    server,
    async (path, call) => {
      const method = methods.get(path)
      if (!method)
        throw new CallRefused(
          status.permissionDenied,
          'The gateway serves only the methods that an activity worker calls',
        )
      const party = await callers.authenticate(call.headers.authorization, method.isPoll)
      const sealing = sealingOf(party)
      const signal = method.isPoll ? AbortSignal.any([call.signal, stopping.signal]) : call.signal
      return limits.within(party, method.isPoll, () =>
        method.run({ party, sealing, call: { ...call, signal } }),
      )
    },
    (path, code, error) => {
      const isKnown = methods.has(path)
      const name = isKnown ? path.slice(path.lastIndexOf('/') + 1) : 'other'
      metrics.gatewayCalls.inc({ method: name, status: String(code) })
      if (code === status.internal) log.error({ err: error, path }, 'a call failed')
      else if (code === status.permissionDenied || code === status.unauthenticated)
        log.warn({ path: isKnown ? path : path.slice(0, 200), reason: String(error) }, 'a call is refused')
    },
  )
  server.listen(settings.KEELSON_GATEWAY_PORT, settings.KEELSON_GATEWAY_HOST)
  await once(server, 'listening')

  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      const closed = once(server, 'close')
      server.close()
      stopping.abort() // ends the polls
      for (const session of sessions) session.close()
      const cut = setTimeout(() => sessions.forEach((session) => session.destroy()), graceMs)
      await closed
      clearTimeout(cut)
      await connection.close()
    },
  }
}

function listener(settings: GatewaySettings, log: Logger): Http2Server | Http2SecureServer {
  const { KEELSON_GATEWAY_TLS_CERT_FILE: certFile, KEELSON_GATEWAY_TLS_KEY_FILE: keyFile } = settings
  if (certFile && keyFile)
    return withTlsFiles({ certFile, keyFile }, (tls) => createSecureServer({ ...options, ...tls }), log)
  if (certFile || keyFile)
    throw new Error('KEELSON_GATEWAY_TLS_CERT_FILE and KEELSON_GATEWAY_TLS_KEY_FILE go together')
  if (!isLoopback(settings.KEELSON_GATEWAY_HOST) && settings.KEELSON_GATEWAY_PLAINTEXT !== 'true')
    throw new Error(
      'The gateway serves other machines by TLS: set KEELSON_GATEWAY_TLS_CERT_FILE and KEELSON_GATEWAY_TLS_KEY_FILE, or KEELSON_GATEWAY_PLAINTEXT if a proxy in front of it terminates TLS',
    )
  return createServer(options)
}
