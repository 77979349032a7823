import { readFileSync, statSync } from 'node:fs'
import type { SecureContextOptions } from 'node:tls'
import type { Logger } from './log.ts'

// Cheap: each look is two `stat` calls.
const lookEveryMs = 5_000

/** TLS 1.2 and newer, with a certificate and its key (PEM). */
export type TlsOptions = Pick<SecureContextOptions, 'cert' | 'key' | 'minVersion'>

interface TlsServer {
  setSecureContext(options: TlsOptions): void
  once(event: 'close', listener: () => void): unknown
}

/**
 * A server with the certificate of these files, which it reads again when they change. Throws if they cannot be read or
 * do not match.
 */
export function withTlsFiles<S extends TlsServer>(
  { certFile, keyFile }: { certFile: string; keyFile: string },
  makeServer: (options: TlsOptions) => S,
  log: Logger,
): S {
  const read = (): TlsOptions => ({
    minVersion: 'TLSv1.2',
    cert: readFileSync(certFile),
    key: readFileSync(keyFile),
  })
  const changed = () => statSync(certFile).mtimeMs + statSync(keyFile).mtimeMs
  const server = makeServer(read())
  let seen = changed()
  const look = setInterval(() => {
    try {
      const now = changed()
      if (now === seen) return
      server.setSecureContext(read())
      seen = now
      log.info('new TLS certificate in use')
    } catch (error) {
      // During a renewal the two files may not match: keep the old ones until the next look.
      log.warn({ err: error }, 'new TLS certificate not usable')
    }
  }, lookEveryMs)
  look.unref()
  server.once('close', () => clearInterval(look))
  return server
}
