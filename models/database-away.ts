import { EventEmitter, setMaxListeners } from 'node:events'
import type { mongo } from 'mongoose'

// How soon this process notices that MongoDB is away, and how long its work waits for it. A MongoDB that is silent (its machine
// is frozen, the network drops packets) closes no connection: only its heartbeat tells. The driver then closes all connections
// of the pool, which ends what waits on them (docs/decisions/053-a-silent-mongodb.md).

/** Without an answer for the sum of both, MongoDB is away. */
const heartbeatMs = 500
const connectMs = 3_000
/** Work waits until MongoDB has been away for this long: a restart takes a second or two, and more on a busy machine. */
const patienceMs = 4_000

export const patience = {
  heartbeatFrequencyMS: heartbeatMs,
  connectTimeoutMS: connectMs,
  serverSelectionTimeoutMS: patienceMs,
  // Mongoose would hold work back until it is connected again, for 10 s.
  bufferCommands: false,
}

/** Not a Problem: the API answers a request with one of its own, and Temporal retries a step, as after any fault of the database. */
export class DatabaseAway extends Error {
  constructor() {
    super('The database does not answer')
    this.name = 'DatabaseAway'
  }
}

let away = makeAway()
let heardAt = 0
let timer: NodeJS.Timeout | undefined

function makeAway(): AbortController {
  const controller = new AbortController()
  setMaxListeners(0, controller.signal)
  return controller
}

const news = new EventEmitter<{ back: [] }>().setMaxListeners(0)

/** Runs `work` each time that this process reaches a primary again. Returns a function that ends this. */
export function onReconnected(work: () => void): () => void {
  news.on('back', work)
  return () => void news.off('back', work)
}

/**
 * Follows whether this client, which has just connected, reaches a primary. Mongoose’s events do not: it takes a connection for lost after two heartbeats
 * without an answer, and then says nothing when the driver finds that it is lost.
 */
export function watchPrimary(client: mongo.MongoClient): void {
  let isThere = true
  heardAt = performance.now()
  clearTimeout(timer)
  if (away.signal.aborted) away = makeAway() // of a former client
  client.on('serverHeartbeatSucceeded', ({ reply }) => {
    if (reply['isWritablePrimary'] === true) heardAt = performance.now()
  })
  client.on('topologyDescriptionChanged', ({ newDescription }) => {
    const isNow = [...newDescription.servers.values()].some((server) => server.isWritable)
    if (isNow === isThere) return
    isThere = isNow
    clearTimeout(timer)
    if (isNow) {
      if (away.signal.aborted) away = makeAway()
      news.emit('back')
      return
    }
    const leftMs = Math.max(0, heardAt + patienceMs - performance.now())
    timer = setTimeout(() => away.abort(new DatabaseAway()), leftMs).unref()
  })
}

/**
 * Runs work that would wait longer for MongoDB than anybody waits for it. Throws DatabaseAway once the primary has not been heard
 * for `patienceMs`, and at once while that lasts. The work must then end by itself: `signal` tells it.
 */
export async function unlessAway<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const { signal } = away
  signal.throwIfAborted()
  const gone = Promise.withResolvers<never>()
  const leave = (): void => gone.reject(signal.reason as Error)
  signal.addEventListener('abort', leave, { once: true })
  try {
    return await Promise.race([work(signal), gone.promise])
  } finally {
    signal.removeEventListener('abort', leave)
  }
}
