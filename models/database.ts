import { AsyncLocalStorage } from 'node:async_hooks'
import mongoose from 'mongoose'
import { makeNamedQueues } from '../lib/queue.ts'
import { parseKeyRing, readKeyRing } from '../lib/seal.ts'
import { openDataKeys, useMasterKeys } from './data-keys.ts'

// Every query made inside `transaction` belongs to it, without a session being handed around.
mongoose.set('transactionAsyncLocalStorage', true)
mongoose.set('autoIndex', false) // indexes are made once, by ensureIndexes

interface Commit {
  afterwards: (() => void)[]
}
const running = new AsyncLocalStorage<Commit>()

export interface DatabaseSettings {
  KEELSON_MONGODB_URL: string
  /** Stands above the file. */
  KEELSON_MASTER_KEY?: string | undefined
  KEELSON_MASTER_KEY_FILE: string
}

/**
 * Connects this process, and reads the keys of its secrets. Rejects when MongoDB does not answer within 5 s, and when
 * there is no master key that opens them.
 */
export async function connectDatabase(settings: DatabaseSettings): Promise<void> {
  const { KEELSON_MASTER_KEY: given, KEELSON_MASTER_KEY_FILE: path } = settings
  useMasterKeys(() => (given ? parseKeyRing(given, 'KEELSON_MASTER_KEY') : readKeyRing(path)))
  await mongoose.connect(settings.KEELSON_MONGODB_URL, {
    // An acknowledged write survives kill -9 and a change of primary.
    writeConcern: { w: 'majority', journal: true },
    maxPoolSize: 50,
    // A restart takes a second or two. Who asks the API while MongoDB is away for longer hears of it, instead
    // of waiting for the driver's 30 s.
    serverSelectionTimeoutMS: 5_000,
    appName: 'keelson',
  })
  await openDataKeys()
}

export const disconnectDatabase = (): Promise<void> => mongoose.disconnect()

/** Makes the collections and indexes that the models declare. Safe to repeat and to run from several processes. */
export async function ensureIndexes(): Promise<void> {
  for (const model of Object.values(mongoose.models)) {
    await model.createCollection()
    await model.createIndexes()
  }
}

/**
 * Runs `work` in one transaction: all of it happens or nothing. Inside another transaction it joins that one.
 * `work` may run more than once (write conflicts), so that it must have no effects but its queries; those
 * that must follow a commit go through `afterCommit`.
 *
 * `turn` names what many transactions would otherwise fight for (a tenant's usage): in this process they go one
 * after another. Without it they would still be right, but MongoDB lets the loser of a conflict wait up to half
 * a second, and 50 at once got 5 a second done.
 */
export async function transaction<T>(work: () => Promise<T>, turn?: string): Promise<T> {
  if (running.getStore()) return work()
  return turn === undefined ? commit(work) : inTurn(turn, () => commit(work))
}

const inTurn = makeNamedQueues()

async function commit<T>(work: () => Promise<T>): Promise<T> {
  const present: Commit = { afterwards: [] }
  const result = await running.run(present, () =>
    mongoose.connection.transaction(() => {
      present.afterwards = []
      return work()
    }),
  )
  for (const effect of present.afterwards) effect()
  return result
}

/** Runs `effect` once the present transaction is committed, at once where there is none. */
export function afterCommit(effect: () => void): void {
  const present = running.getStore()
  if (present) present.afterwards.push(effect)
  else effect()
}

/** Whether MongoDB refused a write because a unique index holds the value already. */
export const isDuplicateKey = (error: unknown): error is { keyPattern: Record<string, unknown> } =>
  error instanceof mongoose.mongo.MongoServerError && error.code === 11000

/**
 * One document of any tenant as the driver reads it, in half the time that it takes through mongoose: for what is
 * asked on each request, by a key that no two tenants share. Not part of a transaction.
 */
export const readOne = <D>(model: mongoose.Model<D>, filter: Record<string, string>): Promise<D | null> =>
  model.collection.findOne<D>(filter as object)
