import type { IncomingHttpHeaders } from 'node:http'

// What the API and a host pass on between a client and the registry of a deploy server.

const ofRequests = [
  'accept',
  'content-type',
  'content-length',
  'content-range',
  'range',
  'transfer-encoding',
] as const
const ofAnswers = [
  'accept-ranges',
  'content-length',
  'content-range',
  'content-type',
  'docker-content-digest',
  'docker-upload-uuid',
  'location',
  'oci-chunk-min-length',
  'range',
] as const

const only =
  (names: readonly string[]) =>
  (headers: IncomingHttpHeaders): Record<string, string> =>
    Object.fromEntries(
      names.flatMap((name) => (typeof headers[name] === 'string' ? [[name, headers[name]]] : [])),
    )

export const relayed = { request: only(ofRequests), response: only(ofAnswers) }

/** Names the image that a request pushes, and says that it is the last of its push: from the API to a host. */
export const pushesHeader = 'keelson-pushes'
export const lastHeader = 'keelson-push-ends'
