import mongoose from 'mongoose'
import { maxTimeMS } from './tenant-scope.ts'

// MongoDB's own commands, for what each request and each call of a model asks of it. A command takes some two thirds of the CPU
// time of the driver's method, and half of mongoose's, and the answer to a write names the election. None is part of a
// transaction.

/** In the primary's memory. A crash of MongoDB takes away what is not in the journal yet: 100 ms at most. */
export const inMemory = { w: 1, j: false }
/** In the journal of a majority, with all that this primary wrote before. */
export const durable = { w: 'majority', j: true }
export type Concern = typeof inMemory | typeof durable

export interface Statement {
  q: object
  u: object
}

export interface Written {
  /** Documents that the filters found, and those that changed. */
  matched: number
  modified: number
  /** An insert found its id taken. */
  isDuplicate: boolean
  /**
   * Of the primary that answered. Each start of a primary is a new one. So of two durable or earlier writes with the same
   * election, nothing was lost between them.
   */
  election: string
}

const nothing: Written = { matched: 0, modified: 0, isDuplicate: false, election: '' }

/** Inserts a document. */
export const insert = (collection: string, document: object, writeConcern: Concern): Promise<Written> =>
  write({ insert: collection, documents: [document], writeConcern })

/** Updates at most one document for each statement, one after another. They must be such that a repetition does no harm. */
export const update = async (
  collection: string,
  updates: Statement[],
  writeConcern: Concern,
): Promise<Written> => (updates.length ? write({ update: collection, updates, writeConcern }) : nothing)

/** The documents of an aggregation, which must be few. */
export async function aggregate<D>(collection: string, pipeline: object[]): Promise<D[]> {
  const { cursor } = await command<Batch<D>>({
    aggregate: collection,
    pipeline,
    cursor: {},
  })
  return cursor.firstBatch
}

/** Up to `limit` documents that the filter finds; fewer if an answer of MongoDB has no room for them (16 MiB). */
export async function find<D>(collection: string, filter: object, limit: number): Promise<D[]> {
  const { cursor } = await command<Batch<D>>({
    find: collection,
    filter,
    limit,
    singleBatch: true,
    maxTimeMS,
  })
  return cursor.firstBatch
}

interface Batch<D> {
  cursor: { firstBatch: D[] }
}

interface Answer {
  n: number
  nModified?: number
  electionId?: mongoose.mongo.ObjectId
  writeErrors?: { code: number; errmsg: string }[]
  writeConcernError?: { code: number; errmsg: string }
}

const duplicateKey = 11000

async function write(body: object): Promise<Written> {
  const { n, nModified = 0, electionId, writeErrors = [] } = await command<Answer>(body)
  const isDuplicate = writeErrors.length > 0
  return { matched: n, modified: nModified, isDuplicate, election: String(electionId) }
}

/** Codes of a MongoDB that shuts down, or is no longer primary: https://www.mongodb.com/docs/manual/reference/error-codes/ */
const primaryGone = new Set([91, 189, 10107, 11600, 11602, 13435, 13436])

const isPrimaryGone = (error: unknown): boolean =>
  error instanceof mongoose.mongo.MongoNetworkError ||
  (error instanceof mongoose.mongo.MongoServerError && primaryGone.has(Number(error.code)))

/** Repeats the command once if its primary went away, as the driver does with its own methods. */
async function command<A>(body: object): Promise<A> {
  try {
    return await answerTo<A>(body)
  } catch (error) {
    if (!isPrimaryGone(error)) throw error
    return answerTo<A>(body)
  }
}

async function answerTo<A>(body: object): Promise<A> {
  const { db } = mongoose.connection
  if (!db) throw new Error('connectDatabase was not called')
  const answer = (await db.command(body, { ignoreUndefined: true })) as A & Partial<Answer>
  const failed = answer.writeConcernError ?? answer.writeErrors?.find(({ code }) => code !== duplicateKey)
  if (failed) throw new mongoose.mongo.MongoServerError(failed)
  return answer
}
