import type { IncomingMessage } from 'node:http'
import { Transform } from 'node:stream'
import type { Express, Request, RequestHandler, Response } from 'express'
import { readOn } from '../../lib/early-answers.ts'
import type { Logger } from '../../lib/log.ts'
import { InvalidInput, NotFound, Problem, Unavailable } from '../../lib/problem.ts'
import { type ArtifactDocument, builder } from '../../models/deploy/artifacts.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { onHosts } from '../../models/deploy/replicas.ts'
import { findUpload, isOver, noteWhole } from '../../models/deploy/uploads.ts'
import { workflowOf } from '../../models/operations.ts'
import { askUpload } from '../compute/observation/data-plane.ts'
import { makeLimiter } from '../limits.ts'
import { problemHandler } from '../problems.ts'

// Archives of artifacts that are sent in parts, by the tus protocol: HEAD tells the offset, PATCH adds bytes at it. They go
// through the api to the worker's disk, and are nowhere else. The token in the address is the only one needed.

interface Parts {
  ratePerSec: number
  /** Tells the artifact's workflow to look at its upload. */
  tell: (workflowId: string) => Promise<void>
  log: Logger
}

const version = '1.0.0'
const partType = 'application/offset+octet-stream'

/** Serves the uploads at /api/v1/uploads/. */
export function serveUploads(app: Express, { ratePerSec, tell, log }: Parts): void {
  // Many callers may share one address.
  const limit = makeLimiter(ratePerSec * 10, 1)

  /** A workflow that did not hear it looks by itself. */
  async function tellOf({ _id, operation_id }: ArtifactDocument): Promise<void> {
    const workflowId = operation_id === null ? null : await workflowOf(operation_id)
    if (workflowId !== null)
      await tell(workflowId).catch((err: unknown) =>
        log.warn({ err, artifact_id: _id }, 'upload not told of'),
      )
  }

  async function answer(request: Request, response: Response): Promise<void> {
    response.set({ 'Tus-Resumable': version, 'Cache-Control': 'no-store' })
    await limit(request.ip ?? '', response)
    const [, id] = /^\/([\w-]{1,64})$/.exec(request.path) ?? []
    const { token } = request.query
    if (id === undefined || typeof token !== 'string') throw new NotFound('upload')
    const artifact = await findUpload(id, token)
    if (isOver(artifact)) {
      await tellOf(artifact)
      throw new Problem(
        410,
        'upload_over',
        'The upload is over',
        'It was cancelled, or not sent within a day',
      )
    }
    if (request.method !== 'HEAD' && request.method !== 'PATCH')
      throw new Problem(405, 'method_not_allowed', 'Method not allowed', 'Allowed: HEAD, PATCH', {
        headers: { Allow: 'HEAD, PATCH' },
      })
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    const { size_bytes } = artifact
    const there = artifact.upload.whole
      ? size_bytes
      : await askUpload(await placeOf(artifact), id, gone.signal)
    response.set({ 'Upload-Length': String(size_bytes), 'Upload-Offset': String(there) })
    const offset =
      request.method === 'HEAD' ? there : await add(request, response, artifact, there, gone.signal)
    if (offset === size_bytes) {
      await noteWhole(artifact)
      await tellOf(artifact)
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
      readOn(request)
      throw error
    }
  }
  app.use('/api/v1/uploads', handle, problemHandler(log))
}

/** Adds the request’s body. Returns the new offset. Throws `upload_offset`, `too_large`. */
async function add(
  request: Request,
  response: Response,
  artifact: ArtifactDocument,
  there: number,
  signal: AbortSignal,
): Promise<number> {
  if (request.get('content-type') !== partType)
    throw new Problem(415, 'unsupported_media_type', `The body must be ${partType}`)
  const given = request.get('upload-offset') ?? ''
  if (!/^\d{1,15}$/.test(given))
    throw new InvalidInput(400, [{ pointer: 'Upload-Offset', message: 'must be a number of bytes' }])
  if (Number(given) !== there) throw otherOffset(there)
  const left = artifact.size_bytes - there
  if (Number(request.get('content-length') ?? 0) > left) throw tooLarge()
  if (left === 0) return there
  const { bytes, counted } = atMost(request, left)
  const offset = await askUpload(await placeOf(artifact), artifact._id, signal, {
    offset: there,
    atMost: left,
    bytes,
  })
  response.set('Upload-Offset', String(offset))
  // Another request has added bytes meanwhile.
  if (offset !== there + counted()) throw otherOffset(offset)
  return offset
}

const otherOffset = (offset: number): Problem =>
  new Problem(409, 'upload_offset', 'The upload is at another offset', `It has ${offset} bytes`)
const tooLarge = (): Problem =>
  new Problem(413, 'too_large', 'The body is too large', 'The archive would be larger than its size_bytes')

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

async function placeOf({ deploy_server_id, tenant_id }: ArtifactDocument) {
  const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
  const node = server?.nodes.find(({ name }) => name === builder)
  const [place] = await onHosts([{ machine_id: node?.machine_id ?? '', service_id: '', node: builder }])
  if (!place) throw new Unavailable('The worker is not there')
  return place
}
