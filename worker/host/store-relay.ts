import { type IncomingMessage, request as ask, type ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { InstanceNotFound, InstanceNotRunning } from '../../drivers/errors.ts'
import type { InstanceEngine } from '../../drivers/instances.ts'
import { StreamAgent } from '../../drivers/system/stream-agent.ts'
import { readRest } from '../../lib/early-answers.ts'
import { storeAnswerHeader } from '../../lib/host-protocol.ts'
import { Problem, Unavailable } from '../../lib/problem.ts'
import { makeQueue, type Queue } from '../../lib/queue.ts'

// The stores of tenants' documents (images/rag), for the platform. A store is a container in its tenant's subnet, where the host
// has no address: a program in the container joins a stream to the store's socket. Other containers have no such program.

const program = ['node', '/store/pipe.mjs']
const methods = ['GET', 'PUT', 'POST', 'DELETE']
/** What a store takes by default. */
const mostBytes = 64 * 1024 ** 2
/** Of a body that is read first, so that it can be sent again. */
const mostKeptBytes = 1024 ** 2
/** For each store. Each stream is a process in its container, with memory of the container. */
const streams = 4
/** Less than a store keeps a connection without requests. */
const idleMs = 50_000

export type StoreRelay = ReturnType<typeof makeStoreRelay>

/** The way into one store. */
interface Way {
  agent: StreamAgent
  /** A call has its turn when there are fewer than its streams. */
  queue: Queue
  calls: number
}

export function makeStoreRelay({ pipe }: Pick<InstanceEngine, 'pipe'>) {
  const ways = new Map<string, Way>()

  function wayTo(id: string): Way {
    const known = ways.get(id)
    if (known) return known
    const agent = new StreamAgent(() => connect(id), { keepAlive: true, streams, idleMs })
    const way = { agent, queue: makeQueue(streams), calls: 0 }
    ways.set(id, way)
    return way
  }

  async function connect(id: string): Promise<Duplex> {
    const stream = await pipe(id, program)
    stream.once('close', () => setImmediate(forgetUnused, id))
    return stream
  }

  function forgetUnused(id: string): void {
    const { agent, calls } = ways.get(id) ?? {}
    const isOpen = [agent?.sockets, agent?.freeSockets].some((one) => one && Object.keys(one).length > 0)
    if (!isOpen && !calls) ways.delete(id)
  }

  /**
   * Passes a request on to the store in this container, and its answer back. Throws Unavailable if the container or its store
   * is not there.
   */
  return async (
    id: string,
    path: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> => {
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    const way = wayTo(id)
    way.calls++
    try {
      await way.queue(() => pass(way.agent, path, request, response, gone.signal), gone.signal)
      response.end()
    } catch (error) {
      if (!response.headersSent) await readRest(request)
      throw error instanceof Problem ? error : unavailable(error)
    } finally {
      way.calls--
      forgetUnused(id)
    }
  }
}

async function pass(
  agent: StreamAgent,
  path: string,
  request: IncomingMessage,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  const length = lengthOf(request)
  const answer = await send(agent, {
    method: request.method ?? 'GET',
    path,
    headers: only(request, 'content-type', 'content-length'),
    body: length <= mostKeptBytes ? await buffer(request) : request,
    signal,
  })
  response.writeHead(answer.statusCode ?? 502, {
    ...only(answer, 'content-type', 'content-length', 'retry-after'),
    [storeAnswerHeader]: 'answers',
  })
  await pipeline(answer, response, { end: false })
  await readRest(request)
}

/** The length of the body. Throws if it is not given, or too long. */
function lengthOf({ headers }: IncomingMessage): number {
  if (headers['transfer-encoding'] !== undefined)
    throw new Problem(411, 'length_required', 'The length of the body is needed')
  const length = Number(headers['content-length'] ?? 0)
  if (length > mostBytes) throw new Problem(413, 'too_large', `A body has at most ${mostBytes} bytes`)
  return length
}

export const isStoreMethod = (method: string | undefined): boolean => methods.includes(method ?? '')

interface Asked {
  method: string
  path: string
  headers: Record<string, string>
  body: Buffer | IncomingMessage
  signal: AbortSignal
}

/**
 * The answer, which is not read yet. A kept stream may have ended at the same moment: then a request whose body is in memory
 * is sent again, as all of a store's calls may be.
 */
const send = (agent: StreamAgent, asked: Asked): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const { body, ...options } = asked
    const sent = ask({ ...options, agent })
    let isOpen = true
    sent.on('response', (answer) => {
      isOpen = false
      resolve(answer)
    })
    sent.on('error', (error) => {
      if (!isOpen) return // the reader of the answer hears of it, or it comes a second time
      isOpen = false
      if (sent.reusedSocket && Buffer.isBuffer(body) && !asked.signal.aborted) resolve(send(agent, asked))
      else reject(error)
    })
    if (Buffer.isBuffer(body)) sent.end(body)
    else body.pipe(sent)
  })

function only({ headers }: IncomingMessage, ...names: string[]): Record<string, string> {
  return Object.fromEntries(
    names.flatMap((name) => (typeof headers[name] === 'string' ? [[name, headers[name]]] : [])),
  )
}

function unavailable(error: unknown): Unavailable {
  if (error instanceof InstanceNotFound)
    return new Unavailable('The container of the store is not on its host', error)
  if (error instanceof InstanceNotRunning)
    return new Unavailable('The container of the store is not running', error)
  return new Unavailable('The store in the container does not answer', error)
}
