import {
  constants,
  type Http2Server,
  type Http2SecureServer,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2'

// Unary gRPC over HTTP/2, as much of it as a gateway needs: one message to and fro, a deadline, a status in trailers.
// A path that is not served, and a caller without a valid token, are refused before a byte of their message is read.

/** The status codes of gRPC in use here. */
export const status = {
  cancelled: 1,
  invalidArgument: 3,
  permissionDenied: 7,
  resourceExhausted: 8,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  unauthenticated: 16,
} as const

/** Ends a call with a status. `details` is the binary form of it, if there is one. */
export class CallRefused extends Error {
  override readonly name = 'CallRefused'
  readonly code: number
  readonly details: Uint8Array | undefined

  constructor(code: number, message: string, details?: Uint8Array) {
    super(message)
    this.code = code
    this.details = details
  }
}

export interface Call {
  headers: IncomingHttpHeaders
  /** Aborted when the caller is gone. */
  signal: AbortSignal
  /** When the caller gives up. */
  deadline: Date
  /** Reads the message. Throws CallRefused. */
  message(): Promise<Buffer>
}

/** Answers a call to `path` with a message. Throws CallRefused. */
export type Answer = (path: string, call: Call) => Promise<Uint8Array>

/** Larger than what Temporal takes (4 MiB per message, 2 MiB per payload). */
const longestMessageBytes = 4 * 1024 * 1024 + 64 * 1024
const messageWithinMs = 20_000
const closeAfterMs = 1_000
/** A long poll takes a minute. */
const longestCallMs = 120_000

/** Serves the calls of all connections. `onEnd` learns how each ended. */
export function serveCalls(
  server: Http2Server | Http2SecureServer,
  answer: Answer,
  onEnd: (path: string, code: number, error: unknown) => void,
): void {
  server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    const path = headers[':path'] ?? ''
    stream.on('error', () => {}) // a caller that is gone
    const gone = new AbortController()
    stream.once('close', () => gone.abort())
    const call: Call = {
      headers,
      signal: gone.signal,
      deadline: deadlineOf(headers),
      message: () => read(stream, headers),
    }
    const begin = async () => {
      if (headers[':method'] !== 'POST') throw new CallRefused(status.unimplemented, 'Only POST is served')
      return answer(path, call)
    }
    const replied = begin().then((message) => {
      reply(stream, message)
      return onEnd(path, 0, null)
    })
    replied.catch((error: unknown) => {
      const refused =
        error instanceof CallRefused ? error : new CallRefused(status.internal, 'The gateway failed')
      refuse(stream, refused)
      onEnd(path, refused.code, error)
    })
  })
}

function reply(stream: ServerHttp2Stream, message: Uint8Array): void {
  if (stream.destroyed || stream.closed) return
  stream.respond(contentType, { waitForTrailers: true })
  stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.byteLength, 1)
  stream.end(Buffer.concat([head, message]))
}

function refuse(stream: ServerHttp2Stream, { code, message, details }: CallRefused): void {
  if (stream.destroyed || stream.closed || stream.headersSent) return
  stream.respond(
    {
      ...contentType,
      'grpc-status': String(code),
      'grpc-message': encodeURI(message),
      ...(details ? { 'grpc-status-details-bin': Buffer.from(details).toString('base64') } : {}),
    },
    { endStream: true },
  )
  // The rest of its message is not read. Not at once: a reset would overtake the answer.
  setTimeout(() => stream.close(constants.NGHTTP2_NO_ERROR), closeAfterMs).unref()
}

const contentType = { ':status': 200, 'content-type': 'application/grpc' }

const unitsMs: Record<string, number> = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 0.001, n: 0.000_001 }

function deadlineOf(headers: IncomingHttpHeaders): Date {
  const [, amount = '', unit = ''] = /^(\d{1,8})([HMSmun])$/.exec(String(headers['grpc-timeout'] ?? '')) ?? []
  const ms = amount ? Number(amount) * (unitsMs[unit] ?? 1) : longestCallMs
  return new Date(Date.now() + Math.min(ms, longestCallMs))
}

async function read(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<Buffer> {
  const all = await wholeBody(stream)
  if (all[0] !== 0 || headers['content-type']?.startsWith('application/grpc') !== true)
    throw new CallRefused(status.unimplemented, 'Only uncompressed gRPC messages are served')
  if (all.byteLength < 5 || all.readUInt32BE(1) !== all.byteLength - 5)
    throw new CallRefused(status.invalidArgument, 'The message is incomplete')
  return all.subarray(5)
}

/** Leaves the stream open, so that a refusal can be sent on it. */
function wholeBody(stream: ServerHttp2Stream): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>()
  const parts: Buffer[] = []
  let bytes = 0
  const late = setTimeout(
    () => reject(new CallRefused(status.cancelled, 'The message took too long')),
    messageWithinMs,
  )
  stream.on('data', (part: Buffer) => {
    bytes += part.byteLength
    if (bytes <= longestMessageBytes) parts.push(part)
    else {
      stream.pause()
      reject(new CallRefused(status.resourceExhausted, 'The message is too large'))
    }
  })
  stream.once('end', () => resolve(Buffer.concat(parts)))
  stream.once('close', () => reject(new CallRefused(status.cancelled, 'The caller is gone')))
  return promise.finally(() => clearTimeout(late))
}
