import { OtherOrigin, type WatchedFetch } from './outbound-fetch.ts'
import { AddressNotAllowed } from './outbound.ts'
import type { Fault } from './probe-stages.ts'

// Why a server could not be reached, in words for its user, with what to do about it. No text of the other side is in them.

const inTime = 'Check that the server runs and answers, and try again'

/** The fault of a request without an answer. `timedOut`: the probe ended it. */
export function networkFault({ step, error }: NonNullable<WatchedFetch['fault']>, timedOut: boolean): Fault {
  const cause = rootOf(error)
  if (step === 'policy') return policyFault(cause)
  if (cause instanceof Error && cause.message === 'bad port')
    return {
      stage: 'policy',
      reason: 'port_not_allowed',
      cause: 'The port belongs to another protocol, and HTTP clients do not use it',
      remedy: 'Let the server listen on another port',
    }
  if (timedOut || codeOf(cause) === 'UND_ERR_CONNECT_TIMEOUT')
    return { stage: step, ...tooSlow[step], remedy: inTime }
  if (step === 'dns')
    return {
      stage: 'dns',
      reason: 'name_not_found',
      cause: 'The name of the server has no address',
      remedy: 'Check the host in the URL',
    }
  if (step === 'connect') return connectFault(codeOf(cause))
  return step === 'tls' ? tlsFault(codeOf(cause)) : httpFault(cause)
}

const tooSlow = {
  dns: { reason: 'name_lookup_timed_out', cause: 'The name of the server was not looked up in time' },
  connect: { reason: 'connect_timed_out', cause: 'The server did not accept the connection in time' },
  tls: { reason: 'tls_timed_out', cause: 'The server did not finish the TLS handshake in time' },
  http: { reason: 'no_answer', cause: 'The server accepted the request but did not answer in time' },
}

function policyFault(error: unknown): Fault {
  if (error instanceof OtherOrigin)
    return {
      stage: 'policy',
      reason: 'other_origin',
      cause: 'The server names an address at another origin, to which its credential must not go',
      remedy: 'Let the server name an address at its own origin, or use the URL of the other one',
    }
  const isPrivate = error instanceof AddressNotAllowed
  return {
    stage: 'policy',
    reason: isPrivate ? 'address_not_allowed' : 'not_allowed',
    cause: 'The URL does not lead to a public address',
    remedy: 'Use a public address, or ask the operator to allow this one',
  }
}

function connectFault(code: string): Fault {
  if (code === 'ECONNREFUSED')
    return {
      stage: 'connect',
      reason: 'refused',
      cause: 'The server refuses connections',
      remedy: 'Check the port in the URL, and that the server runs',
    }
  return {
    stage: 'connect',
    reason: 'unreachable',
    cause: `The server cannot be reached${named(code)}`,
    remedy: 'Check the host in the URL, and the network of the server',
  }
}

const tlsCauses: Record<string, [cause: string, remedy: string]> = {
  CERT_HAS_EXPIRED: ['Its certificate has expired', 'Renew the certificate of the server'],
  ERR_TLS_CERT_ALTNAME_INVALID: [
    'Its certificate is for another name',
    'Use the name of the certificate in the URL, or give the server another one',
  ],
  ERR_SSL_WRONG_VERSION_NUMBER: [
    'There is no TLS at this port',
    'Use http:// in the URL, or the port on which the server has TLS',
  ],
}

function tlsFault(code: string): Fault {
  const [cause, remedy] = tlsCauses[code] ?? [
    `Its certificate or TLS is not accepted${named(code)}`,
    'Give the server a certificate of a public authority, with its whole chain',
  ]
  return { stage: 'tls', reason: 'tls_refused', cause, remedy }
}

function httpFault(error: unknown): Fault {
  if (error instanceof Error && error.name === 'HTTPParserError')
    return {
      stage: 'http',
      reason: 'not_http',
      cause: 'What answers at this port does not speak HTTP',
      remedy: 'Check the port in the URL',
    }
  return {
    stage: 'http',
    reason: 'connection_ended',
    cause: 'The server ended the connection without an answer',
    remedy: 'Look at the log of the server',
  }
}

/** The fault of an answer with a status that is no success. */
export function statusFault(status: number, hasCredential: boolean): Fault {
  if (status === 401) return unauthorized(hasCredential)
  if (status === 403)
    return {
      stage: 'auth',
      reason: 'forbidden',
      cause: 'The server denies access (HTTP 403)',
      remedy: hasCredential
        ? 'Give the credential the rights that the server wants'
        : 'Give the tool a credential, if the server wants one',
    }
  const http = { stage: 'http' as const, reason: 'http_status' }
  if (status >= 300 && status < 400)
    return {
      ...http,
      reason: 'redirected',
      cause: `The server redirects to another address (HTTP ${status})`,
      remedy: 'Use the address to which it redirects',
    }
  if (status === 404 || status === 405 || status === 410)
    return {
      ...http,
      reason: 'not_found',
      cause: `Nothing answers at this path (HTTP ${status})`,
      remedy: 'Check the path in the URL; many MCP servers use /mcp or /sse',
    }
  if (status === 429)
    return {
      ...http,
      reason: 'rate_limited',
      cause: 'The server wants fewer requests (HTTP 429)',
      remedy: 'Try again later',
    }
  if (status >= 500)
    return {
      ...http,
      reason: 'server_error',
      cause: `The server failed (HTTP ${status})`,
      remedy: 'Look at the log of the server, and try again',
    }
  return {
    ...http,
    cause: `The server refuses the request (HTTP ${status})`,
    remedy: 'Check the URL, and the transport of the tool',
  }
}

const unauthorized = (hasCredential: boolean): Fault => ({
  stage: 'auth',
  reason: 'unauthorized',
  cause: hasCredential
    ? 'The server refuses the credential (HTTP 401)'
    : 'The server wants a credential (HTTP 401)',
  remedy: hasCredential
    ? 'Replace the secret, or connect its connector again'
    : 'Give the tool an auth with a secret, or with a connector',
})

/** The error at the end of the causes; of several attempts, the first. */
function rootOf(error: unknown): unknown {
  let at = error
  while (at instanceof Error && at.cause !== undefined) at = at.cause
  return at instanceof AggregateError && codeOf(at) === '' ? at.errors[0] : at
}

const codeOf = (error: unknown): string => {
  const { code } = Object(error) as { code?: unknown }
  return typeof code === 'string' ? code : ''
}

const named = (code: string): string => (/^[A-Z0-9_]{1,60}$/.test(code) ? ` (${code})` : '')
