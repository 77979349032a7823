import { createServer, type RequestListener, type Server, type ServerOptions } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { Logger } from '../lib/log.ts'
import { withTlsFiles } from '../lib/tls-files.ts'
import type { WebSockets } from '../lib/websockets.ts'

export interface ServerSettings {
  KEELSON_TLS_CERT_FILE?: string | undefined
  KEELSON_TLS_KEY_FILE?: string | undefined
}

// Limits slow headers; slow-bodies.ts limits bodies. The duration of an answer is not limited.
const limits = {
  headersTimeout: 20_000,
  requestTimeout: 0,
  connectionsCheckingInterval: 5_000,
  // Longer than proxies and clients keep an idle connection (at most a minute): if the server closed first, a request
  // in flight would be lost.
  keepAliveTimeout: 75_000,
}

/** HTTP, or HTTPS if a certificate is set. Throws if its files cannot be read or do not match. */
export function makeServer(
  handler: RequestListener,
  settings: ServerSettings,
  sockets: WebSockets,
  log: Logger,
): Server {
  const server = listening(handler, settings, { ...limits, ...sockets.serverOptions }, log)
  sockets.attach(server, handler)
  return server
}

function listening(
  handler: RequestListener,
  settings: ServerSettings,
  options: ServerOptions,
  log: Logger,
): Server {
  const { KEELSON_TLS_CERT_FILE: certFile, KEELSON_TLS_KEY_FILE: keyFile } = settings
  if (!certFile && !keyFile) return createServer(options, handler)
  if (!certFile || !keyFile) throw new Error('KEELSON_TLS_CERT_FILE and KEELSON_TLS_KEY_FILE go together')
  const files = { certFile, keyFile }
  return withTlsFiles(files, (tls) => createTlsServer({ ...options, ...tls }, handler), log)
}
