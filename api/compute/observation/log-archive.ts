import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { createGzip, gunzip } from 'node:zlib'
import { BlobMissing } from '../../../lib/blob-store.ts'
import { logPieceBytes } from '../../../lib/host-protocol.ts'
import { NotFound, Unavailable } from '../../../lib/problem.ts'
import type { InstanceDocument } from '../../../models/compute/instances.ts'
import {
  archivedPieces,
  isThere,
  lastPieceBefore,
  lastPieceOf,
  LogArchive,
  type LogArchiveDocument,
  type LogPieceDocument,
  readPiece,
} from '../../../models/compute/log-archive.ts'
import { type FileLeft, filesLeft } from './log-files-left.ts'
import { type Joiner, makeLineJoiner } from './log-lines.ts'

// The whole output of an instance or a load balancer: the archived part, then the part that is still on its host.

const expand = promisify(gunzip)

/** More files than any host keeps of one instance. */
const mostFiles = 10_000

const dropped = 'output may be missing here: its host had to drop some before it could be archived'
const cut = 'output is missing here: it was removed because the tenant’s archive is full (max_archive_gib)'
export const away = 'output is missing here: the host that has it does not answer'

/** Whether the output is complete. A trailer, since this is known only at the end. */
const completeTrailer = 'X-Archive-Complete'

/** What reads output: the signal is that its reader has left, and `onMissing` is called at each gap. */
export type ReadOutput = (signal: AbortSignal, onMissing: () => void) => AsyncIterable<Buffer>

/** Streams output, with a remark at each gap and the trailer at the end. */
export async function sendArchive(
  read: ReadOutput,
  response: ServerResponse,
  { compressed, mediaType }: { compressed: boolean; mediaType: string },
): Promise<void> {
  const gone = new AbortController()
  response.once('close', () => gone.abort())
  response.writeHead(200, {
    'Content-Type': mediaType,
    'Cache-Control': 'no-store',
    Vary: 'Accept-Encoding',
    Trailer: completeTrailer,
    ...(compressed ? { 'Content-Encoding': 'gzip' } : {}),
  })
  let complete = true
  const source = Readable.from(read(gone.signal, () => (complete = false)))
  try {
    if (compressed) await pipeline(source, createGzip({ level: 1 }), response, { end: false })
    else await pipeline(source, response, { end: false })
    response.addTrailers({ [completeTrailer]: String(complete) })
    response.end()
  } catch (error) {
    response.destroy() // the client must not take a broken answer for a whole one
    if (!gone.signal.aborted) throw error
  }
}

/** The output of an instance. */
export async function* outputOf(
  { _id, tenant_id, host_id }: InstanceDocument,
  signal: AbortSignal,
  onMissing: () => void,
): AsyncGenerator<Buffer> {
  const archive = await LogArchive.findOne({ _id, tenant_id }).lean()
  const scope = { tenant_id, instance_id: _id }
  const reader = makeReader(scope, archive, makeLineJoiner(onMissing), onMissing)
  const former = new Set((archive?.former_hosts ?? []).map((stay) => stay.host_id))
  if (archive?.cut) yield* reader.cut()

  for (const hostId of former) {
    if (hostId === host_id) continue
    const left = await leftOn(hostId, _id, signal)
    if (left) {
      yield* reader.left(left)
      continue
    }
    const last = await lastPieceOf({ ...scope, host_id: hostId })
    if (last) yield* reader.archived(last)
    yield* reader.missing()
  }
  yield* toTheEnd(reader, _id, host_id, signal)
}

/** The part of an owner's output that one host has written. */
export async function* outputOnHost<T>(
  scope: { tenant_id: string; instance_id: string; host_id: string },
  { joiner, isAsked, since, signal, onMissing }: HostOutput<T>,
): AsyncGenerator<T> {
  const { tenant_id, instance_id: _id, host_id } = scope
  const archive = await LogArchive.findOne({ _id, tenant_id }).lean()
  const before = since === undefined ? null : await lastPieceBefore(scope, new Date(since - clocksDifferMs))
  const reader = makeReader(scope, archive, joiner, onMissing, before)
  if (cutTo(archive) > Math.max(0, (since ?? 0) - clocksDifferMs)) yield* reader.cut()
  yield* toTheEnd(reader, _id, isAsked ? host_id : null, signal)
}

// Between a host, which writes lines, and the platform, which archives them.
const clocksDifferMs = 10 * 60_000

interface HostOutput<T> {
  joiner: Joiner<T>
  /** Whether the host may have output that is not archived. */
  isAsked: boolean
  /** In ms since the epoch: what was archived well before is left out. Older lines may be there nevertheless. */
  since?: number
  signal: AbortSignal
  onMissing: () => void
}

async function* toTheEnd<T>(
  reader: Reader<T>,
  id: string,
  host_id: string | null,
  signal: AbortSignal,
): AsyncGenerator<T> {
  // Read the archive before asking the host: the host keeps its files until they are read.
  yield* reader.archived()
  const left = host_id ? await leftOn(host_id, id, signal) : []
  if (left) yield* reader.left(left)
  // Read what was archived meanwhile, also if the host had nothing left. What is missing comes after that.
  yield* reader.archived()
  if (!left) yield* reader.missing()
  yield* reader.cutMeanwhile()
  yield* reader.rest()
}

const leftOn = (hostId: string, id: string, signal: AbortSignal): Promise<AsyncIterable<FileLeft> | null> =>
  filesLeft(hostId, id, signal).catch((error: unknown) => {
    if (error instanceof Unavailable) return null
    throw error
  })

/**
 * Reads each byte once, although files move to the archive meanwhile. A byte that is no longer on a host when the host
 * is asked is in the archive: so the archive is read to its end after the host is asked, and before the host's files.
 * `readTo` holds how far each file has been read.
 */
function makeReader<T>(
  scope: { tenant_id: string; instance_id: string; host_id?: string },
  archive: LogArchiveDocument | null,
  joiner: Joiner<T>,
  onMissing: () => void,
  after: LogPieceDocument | null = null,
): Reader<T> {
  const readTo = new Map<string, number>()
  let last = after
  let engineId = ''
  let saidCut = false
  const cutBefore = cutTo(archive)

  /** Ends an unfinished line of one engine's container, so that it does not run into the next one's output. */
  function* of(engine: string, bytes: Buffer): Generator<T> {
    if (engine !== engineId && engineId) yield joiner.end()
    engineId = engine
    yield joiner.push(bytes)
  }

  function* missing(words: string): Generator<T> {
    onMissing()
    yield joiner.end()
    yield joiner.remark(words)
  }

  function* cutHere(): Generator<T> {
    saidCut = true
    yield* missing(cut)
  }

  const archiveNow = () => LogArchive.findOne({ _id: scope.instance_id, tenant_id: scope.tenant_id }).lean()

  /** The part of these bytes that is unread, also if they were read from a host and archived since. */
  function unread(file: string, from: number, bytes: Buffer): Buffer {
    const to = Math.max(readTo.get(file) ?? 0, from)
    readTo.delete(file) // set it again as the newest
    readTo.set(file, Math.max(to, from + bytes.length))
    for (const oldest of readTo.keys()) {
      if (readTo.size <= mostFiles) break
      readTo.delete(oldest)
    }
    return bytes.subarray(to - from)
  }

  /** Reads up to the newest piece at this moment: an instance may write faster than the client reads. */
  async function* archived(until?: { engine_created_at: string }): AsyncGenerator<T> {
    const newest = await lastPieceOf(scope)
    if (newest?._id === last?._id) return
    for await (const piece of archivedPieces(scope, last)) {
      if (until && piece.engine_created_at > until.engine_created_at) return
      archive ??= await archiveNow()
      if (!archive) throw new NotFound('instance') // deleted meanwhile
      if (piece.after_gap) yield* missing(dropped)
      const isNext = last?.engine_id !== piece.engine_id || piece.seq === last.seq + 1
      if (!isNext && scope.host_id === undefined) yield* cutHere()
      last = piece
      if ((readTo.get(piece.file) ?? 0) < piece.to) {
        const bytes = await contentOf(piece, archive)
        if (bytes) yield* of(piece.engine_id, unread(piece.file, piece.from, bytes))
        else yield* cutHere()
      }
      if (piece._id === newest?._id) return
    }
  }

  return {
    archived,

    async *left(files) {
      let isFirst = true
      for await (const file of files) {
        if (isFirst) yield* archived(file)
        isFirst = false
        if (file.after_gap && !readTo.has(file.file)) yield* missing(dropped)
        let at = 0
        for await (const part of file.content) {
          yield* of(file.engine_id, unread(file.file, at, part))
          at += part.length
        }
      }
    },

    missing: () => missing(away),

    cut: cutHere,

    /** Pieces may have come from the host and been dropped since the archive was read. */
    async *cutMeanwhile() {
      if (!saidCut && cutTo(await archiveNow()) > cutBefore) yield* cutHere()
    },

    *rest() {
      yield joiner.end()
    },
  }
}

/** Null if the piece was dropped since it was found. */
async function contentOf(piece: LogPieceDocument, archive: LogArchiveDocument): Promise<Buffer | null> {
  try {
    return await expand(await readPiece(piece, archive), { maxOutputLength: 2 * logPieceBytes })
  } catch (error) {
    if (!(error instanceof BlobMissing) || (await isThere(piece))) throw error
    return null
  }
}

/** The time of the newest piece that was cut. */
const cutTo = (archive: LogArchiveDocument | null): number => archive?.cut?.created_at.getTime() ?? 0

interface Reader<T> {
  archived(until?: { engine_created_at: string }): AsyncIterable<T>
  left(files: AsyncIterable<FileLeft> | FileLeft[]): AsyncIterable<T>
  missing(): Iterable<T>
  /** Says that pieces were dropped for the tenant's limit. */
  cut(): Iterable<T>
  cutMeanwhile(): AsyncIterable<T>
  rest(): Iterable<T>
}
