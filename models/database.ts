import { AsyncLocalStorage } from 'node:async_hooks'
import mongoose from 'mongoose'
import { useMasterKeys } from './secrets.ts'

// Every query made inside `transaction` belongs to it, without a session being handed around.
mongoose.set('transactionAsyncLocalStorage', true)
mongoose.set('autoIndex', false) // indexes are made once, by ensureIndexes
mongoose.set('strictQuery', 'throw')

interface Commit {
  afterwards: (() => void)[]
}
const running = new AsyncLocalStorage<Commit>()

export interface DatabaseSettings {
  KEELSON_MONGODB_URL: string
  KEELSON_MASTER_KEY_FILE: string
}

/** Connects this process. Rejects when MongoDB does not answer within 30 s. */
export async function connectDatabase(settings: DatabaseSettings): Promise<void> {
  useMasterKeys(settings.KEELSON_MASTER_KEY_FILE)
  await mongoose.connect(settings.KEELSON_MONGODB_URL, {
    // An acknowledged write survives kill -9 and a change of primary.
    writeConcern: { w: 'majority', journal: true },
    maxPoolSize: 50,
    appName: 'keelson',
  })
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
 */
export async function transaction<T>(work: () => Promise<T>): Promise<T> {
  if (running.getStore()) return work()
  const commit: Commit = { afterwards: [] }
  const result = await running.run(commit, () =>
    mongoose.connection.transaction(() => {
      commit.afterwards = []
      return work()
    }),
  )
  for (const effect of commit.afterwards) effect()
  return result
}

/** Runs `effect` once the present transaction is committed, at once where there is none. */
export function afterCommit(effect: () => void): void {
  const commit = running.getStore()
  if (commit) commit.afterwards.push(effect)
  else effect()
}

/** Whether MongoDB refused a write because a unique index holds the value already. */
export const isDuplicateKey = (error: unknown): error is { keyPattern: Record<string, unknown> } =>
  error instanceof mongoose.mongo.MongoServerError && error.code === 11000
