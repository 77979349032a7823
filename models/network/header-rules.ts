// The headers that a route may add and remove.

/** A token (RFC 9110, 5.6.2). */
export const headerName = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/
/** Printable ASCII, with spaces inside: no line breaks, no NUL. */
export const headerValue = /^[\x21-\x7e](?:[\x20-\x7e\t]{0,4094}[\x21-\x7e])?$/

// A proxy has its own connection on either side, and reads where a message ends from these.
const ofConnection = [
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]
// The load balancer sets these: targets trust them.
const ofBalancer = /^(?:forwarded$|x-forwarded-|x-real-ip$|x-request-id$)/

/** Why a route may not add or remove the header; null if it may. */
export function faultOfHeader(name: string, on: 'request' | 'response'): string | null {
  const lower = name.toLowerCase()
  if (!headerName.test(name)) return 'is not a header name'
  if (ofConnection.includes(lower)) return 'belongs to the connection, not to the message'
  if (on === 'request' && (ofBalancer.test(lower) || lower === 'host')) return 'is set by the load balancer'
  return null
}
