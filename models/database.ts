import { AsyncLocalStorage } from 'node:async_hooks'
import mongoose from 'mongoose'
import { makeNamedQueues } from '../lib/queue.ts'
import { parseKeyRing, readKeyRing } from '../lib/seal.ts'
import { patience, unlessAway, watchPrimary } from './database-away.ts'
import { openDataKeys, useMasterKeys } from './data-keys.ts'

// Every query inside `transaction` joins it without passing a session.
mongoose.set('transactionAsyncLocalStorage', true)
mongoose.set('autoIndex', false) // `ensureIndexes` makes the indexes

interface Commit {
  afterwards: (() => void)[]
}
const running = new AsyncLocalStorage<Commit>()

export interface DatabaseSettings {
  KEELSON_MONGODB_URL: string
  /** Overrides the file. */
  KEELSON_MASTER_KEY?: string | undefined
  KEELSON_MASTER_KEY_FILE: string
}

/**
 * Connects this process, and reads the data keys. Rejects if MongoDB does not answer, or if no master key opens the data
 * keys.
 */
export async function connectDatabase(settings: DatabaseSettings): Promise<void> {
  const { KEELSON_MASTER_KEY: given, KEELSON_MASTER_KEY_FILE: path } = settings
  useMasterKeys(() => (given ? parseKeyRing(given, 'KEELSON_MASTER_KEY') : readKeyRing(path)))
  await connectWithoutKeys(settings.KEELSON_MONGODB_URL)
  await openDataKeys()
}

/** Connects a process that reads no secrets. Rejects if MongoDB does not answer within `patience`. */
export async function connectWithoutKeys(url: string): Promise<void> {
  await mongoose.connect(url, {
    // An acknowledged write survives kill -9 and a failover.
    writeConcern: { w: 'majority', journal: true },
    maxPoolSize: 50,
    ...patience,
    appName: 'keelson',
  })
  watchPrimary(mongoose.connection.getClient())
}

export { onReconnected } from './database-away.ts'

export const disconnectDatabase = (): Promise<void> => mongoose.disconnect()

/** Makes the collections and indexes that the models declare. Safe to repeat and to run from several processes. */
export async function ensureIndexes(): Promise<void> {
  for (const model of Object.values(mongoose.models)) {
    await model.createCollection()
    await model.createIndexes()
  }
}

/**
 * Runs `work` in one transaction, or as part of the transaction that is already running. `work` may run more than once
 * (write conflicts), so it must have no effects but its queries; use `afterCommit` for effects that follow a commit.
 *
 * `turn` names a contended record (a tenant's usage): transactions with the same turn run one after another in this
 * process. Without it they are correct but slow: after a conflict MongoDB's loser waits up to half a second, and 50
 * concurrent transactions reached 5 per second.
 *
 * Throws DatabaseAway while it is away. A commit that was under way then may be done all the same.
 */
export async function transaction<T>(work: () => Promise<T>, turn?: string): Promise<T> {
  if (running.getStore()) return work()
  return unlessAway((away) =>
    turn === undefined ? commit(work, away) : inTurn(turn, () => commit(work, away)),
  )
}

const inTurn = makeNamedQueues()

async function commit<T>(work: () => Promise<T>, away: AbortSignal): Promise<T> {
  const present: Commit = { afterwards: [] }
  const result = await running.run(present, () =>
    mongoose.connection.transaction(() => {
      // Its caller has been told that nothing happened.
      away.throwIfAborted()
      present.afterwards = []
      return work()
    }),
  )
  for (const effect of present.afterwards) effect()
  return result
}

/** Runs `effect` after the current transaction commits, or at once outside a transaction. */
export function afterCommit(effect: () => void): void {
  const present = running.getStore()
  if (present) present.afterwards.push(effect)
  else effect()
}

const outside = AsyncLocalStorage.snapshot()

/**
 * Runs `work` apart from the running transaction: its writes stay if that is rolled back, and it is not part of its
 * snapshot. For requests to other systems, which cannot be rolled back.
 */
export const apart = <T>(work: () => Promise<T>): Promise<T> => outside(work)

/** Whether MongoDB refused a write because of a unique index. */
export const isDuplicateKey = (error: unknown): error is { keyPattern: Record<string, unknown> } =>
  error instanceof mongoose.mongo.MongoServerError && error.code === 11000
