import type { IncomingMessage } from 'node:http'
import { type Said, type Send, StoreClient } from '../../images/rag/client.ts'
import { StoreError } from '../../images/rag/errors.ts'
import type { Store } from '../../images/rag/store.ts'
import { storeAnswerHeader, storeSubject } from '../../lib/host-protocol.ts'
import { sendPinned } from '../../lib/pinned-tls.ts'
import { Host } from '../compute/hosts.ts'
import { planeFields, planeRequest } from '../compute/plane-requests.ts'

export { StoreError } from '../../images/rag/errors.ts'

// The way from the platform to the store of a tenant's documents: through the data plane of the host that has its container.

export interface StorePlace {
  host_id: string
  /** The store's container. */
  instance_id: string
}

/** A document of 20 MB took 4 to 13 s on a busy machine. */
const answersWithinMs = 120_000
/** Of an answer: 1,000 hits with the longest texts have some 35 MB, if these are ASCII. */
const mostBytes = 64 * 1024 ** 2

/**
 * The store in this container. Its methods throw StoreError: those of the store, and `unavailable` if the host, the container
 * or the store in it does not answer within the time. Each call may be repeated.
 */
export const storeAt = (place: StorePlace, { timeoutMs = answersWithinMs } = {}): Store =>
  new StoreClient(sendTo(place, timeoutMs))

const sendTo =
  ({ host_id, instance_id }: StorePlace, timeoutMs: number): Send =>
  async (method, path, body) => {
    const bytes = body && Buffer.from(JSON.stringify(body))
    try {
      const target = `/instances/${instance_id}/store${path}`
      const host = await Host.findById(host_id, planeFields).lean()
      const request = await planeRequest(host, storeSubject(instance_id), { method, target })
      const answer = await sendPinned({
        ...request,
        ...(bytes && {
          headers: {
            ...request.headers,
            'content-type': 'application/json',
            'content-length': String(bytes.length),
          },
          body: bytes,
        }),
        signal: AbortSignal.timeout(timeoutMs),
      })
      return await read(answer)
    } catch (error) {
      if (error instanceof StoreError) throw error
      throw new StoreError('unavailable', 'The host of the store does not answer', { cause: error })
    }
  }

async function read(answer: IncomingMessage): Promise<Said> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of answer as AsyncIterable<Buffer>) {
    bytes += piece.length
    if (bytes > mostBytes) throw new StoreError('unavailable', 'The answer of the store is too long')
    pieces.push(piece)
  }
  const said = Buffer.concat(pieces).toString('utf8')
  if (answer.headers[storeAnswerHeader] === undefined)
    throw new StoreError('unavailable', refusalIn(said) ?? 'The host of the store refuses the request')
  return { status: answer.statusCode ?? 0, said }
}

/** Why a host has not asked the store, in its words. */
function refusalIn(said: string): string | null {
  try {
    const { detail } = JSON.parse(said) as { detail?: unknown }
    return typeof detail === 'string' ? detail : null
  } catch {
    return null
  }
}
