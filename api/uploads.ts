import type { IncomingMessage } from 'node:http'
import { Transform } from 'node:stream'
import type { Express, Request, RequestHandler, Response } from 'express'
import { readOn, readRest } from '../lib/early-answers.ts'
import type { Logger } from '../lib/log.ts'
import { InvalidInput, NotFound, Problem } from '../lib/problem.ts'
import { workflowOf } from '../models/operations.ts'
import { makeLimiter } from './limits.ts'
import { problemHandler } from './problems.ts'

// What is sent in parts, by the tus protocol: HEAD tells the offset, PATCH adds bytes at it. The token in the address is the
// only one needed. An operation waits for the last byte.

/** Something that is sent in parts, and where its bytes go. */
export interface Upload {
  id: string
  size_bytes: number
  /** The operation that waits for it, if it still does. */
  operation_id: string | null
  /** It was cancelled, or not sent in time. */
  isOver: boolean
  /** The bytes that have come. */
  offset(signal: AbortSignal): Promise<number>
  /** Adds bytes. Returns the new offset. */
  add(part: Part, signal: AbortSignal): Promise<number>
  /** All bytes have come. Idempotent. */
  noteWhole(): Promise<void>
}

export interface Part {
  offset: number
  /** Fails when more bytes come than are left. */
  bytes: Transform
  left: number
}

/** The upload with this id and token. Null: there is none of this kind. */
export type FindUpload = (id: string, token: string) => Promise<Upload | null>

interface Parts {
  kinds: FindUpload[]
  ratePerSec: number
  /** Tells the workflow that waits for an upload to look at it. */
  tell: (workflowId: string) => Promise<void>
  log: Logger
}

const version = '1.0.0'
const partType = 'application/offset+octet-stream'

/** Serves the uploads at /api/v1/uploads/. */
export function serveUploads(app: Express, { kinds, ratePerSec, tell, log }: Parts): void {
  // Many callers may share one address.
  const limit = makeLimiter(ratePerSec * 10, 1)

  async function find(id: string, token: string): Promise<Upload> {
    for (const kind of kinds) {
      const found = await kind(id, token)
      if (found) return found
    }
    throw new NotFound('upload')
  }

  /** A workflow that did not hear it looks by itself. */
  async function tellOf({ id, operation_id }: Upload): Promise<void> {
    const workflowId = operation_id === null ? null : await workflowOf(operation_id)
    if (workflowId !== null)
      await tell(workflowId).catch((err: unknown) =>
        log.warn({ err, resource_id: id }, 'the workflow was not told of the upload'),
      )
  }

  async function answer(request: Request, response: Response): Promise<void> {
    response.set({ 'Tus-Resumable': version, 'Cache-Control': 'no-store' })
    await limit(request.ip ?? '', response)
    const [, id] = /^\/([\w-]{1,64})$/.exec(request.path) ?? []
    const { token } = request.query
    if (id === undefined || typeof token !== 'string') throw new NotFound('upload')
    const upload = await find(id, token)
    if (upload.isOver) {
      await tellOf(upload)
      throw new Problem(
        410,
        'upload_over',
        'The upload is over',
        'The upload was cancelled, or not completed within a day',
      )
    }
    if (request.method !== 'HEAD' && request.method !== 'PATCH')
      throw new Problem(405, 'method_not_allowed', 'Method not allowed', 'Allowed: HEAD, PATCH', {
        headers: { Allow: 'HEAD, PATCH' },
      })
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    const { size_bytes } = upload
    const there = await upload.offset(gone.signal)
    response.set({ 'Upload-Length': String(size_bytes), 'Upload-Offset': String(there) })
    const offset =
      request.method === 'HEAD' ? there : await add(request, response, upload, there, gone.signal)
    if (offset === size_bytes) {
      await upload.noteWhole()
      await tellOf(upload)
    }
    response
      .status(request.method === 'HEAD' ? 200 : 204)
      .set('Upload-Offset', String(offset))
      .end()
  }

  const handle: RequestHandler = async (request, response) => {
    try {
      await answer(request, response)
    } catch (error) {
      if (response.destroyed) return // the client has left, and goes on later
      if (response.shouldKeepAlive) readOn(request)
      else await readRest(request)
      throw error
    }
  }
  app.use('/api/v1/uploads', handle, problemHandler(log))
}

/** Adds the request’s body. Returns the new offset. Throws `upload_offset`, `too_large`. */
async function add(
  request: Request,
  response: Response,
  upload: Upload,
  there: number,
  signal: AbortSignal,
): Promise<number> {
  if (request.get('content-type') !== partType)
    throw new Problem(415, 'unsupported_media_type', `The body must be ${partType}`)
  const given = request.get('upload-offset') ?? ''
  if (!/^\d{1,15}$/.test(given))
    throw new InvalidInput(400, [{ pointer: 'Upload-Offset', message: 'must be a number of bytes' }])
  if (Number(given) !== there) throw otherOffset(there)
  const left = upload.size_bytes - there
  if (Number(request.get('content-length') ?? 0) > left) throw tooLarge()
  if (left === 0) return there
  const { bytes, counted } = atMost(request, left)
  const offset = await upload.add({ offset: there, left, bytes }, signal)
  response.set('Upload-Offset', String(offset))
  // Another request has added bytes meanwhile.
  if (offset !== there + counted()) throw otherOffset(offset)
  return offset
}

const otherOffset = (offset: number): Problem =>
  new Problem(409, 'upload_offset', 'The upload is at another offset', `The upload has ${offset} bytes`)
const tooLarge = (): Problem =>
  new Problem(413, 'too_large', 'The body is too large', 'The upload would be larger than its size_bytes')

/** The body, which fails when it has more bytes than these. */
function atMost(body: IncomingMessage, most: number): { bytes: Transform; counted: () => number } {
  let count = 0
  const bytes = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      count += chunk.length
      if (count > most) done(tooLarge())
      else done(null, chunk)
    },
  })
  body.on('error', (cause) => bytes.destroy(cause))
  body.on('aborted', () => bytes.destroy(new Error('the client has left')))
  body.pipe(bytes)
  return { bytes, counted: () => count }
}
