import mongoose, { Schema } from 'mongoose'
import { RateLimiterMongo, RateLimiterRes } from 'rate-limiter-flexible'
import { TooManyRequests } from '../../lib/problem.ts'
import { schemaOptions } from '../schemas.ts'

/** Failed attempts per account and per network address, in the format of rate-limiter-flexible. */
interface AttemptDocument {
  key: string
  points: number
  expire: Date | null
}
const schema = new Schema<AttemptDocument>(
  { key: { type: String, required: true }, points: Number, expire: Date },
  { ...schemaOptions, collection: 'attempts' },
)
schema.index({ key: 1 }, { unique: true })
schema.index({ expire: 1 }, { expireAfterSeconds: 0 })
export const Attempt = mongoose.model<AttemptDocument>('Attempt', schema)

const windowSec = 15 * 60
// In MongoDB: all replicas of the API share the counts.
const makeLimiter = (keyPrefix: string, points: number): RateLimiterMongo =>
  new RateLimiterMongo({
    storeClient: mongoose.connection.getClient(),
    dbName: mongoose.connection.name,
    tableName: Attempt.collection.name,
    disableIndexesCreation: true, // the schema has them
    keyPrefix,
    points,
    duration: windowSec,
  })
const makeLimiters = () => ({
  account: makeLimiter('account', 5),
  address: makeLimiter('address', 20),
  client: makeLimiter('client', 20),
  reset: makeLimiter('reset', 5),
})
let made: ReturnType<typeof makeLimiters> | undefined
const limiters = (): ReturnType<typeof makeLimiters> => (made ??= makeLimiters())

/**
 * An incomplete attempt without a wrong guess: it counts neither as a failure nor as a success that clears failures.
 */
export class Unfinished extends Error {
  override readonly name = 'Unfinished'
}

/**
 * Runs `work`, which throws if a guess was wrong. Throws TooManyRequests after five failures in 15 minutes for an
 * account, known or not, or 20 from an address. An attempt counts when it starts, so parallel attempts get no more
 * guesses. A success clears the account.
 */
export async function attempt<T>(email: string, address: string, work: () => Promise<T>): Promise<T> {
  const { account, address: from } = limiters()
  const key = email.toLowerCase()
  await count(from, address)
  await count(account, key)
  try {
    const result = await work()
    await Promise.all([from.reward(address), account.delete(key)])
    return result
  } catch (error) {
    if (!(error instanceof Unfinished)) throw error
    await Promise.all([from.reward(address), account.reward(key)])
    throw error.cause
  }
}

/** Runs `work` and counts its failures against the address alone: 20 in 15 minutes. Throws TooManyRequests. */
export async function attemptFrom<T>(address: string, work: () => Promise<T>): Promise<T> {
  const { client } = limiters()
  const seen = await client.get(address)
  if (seen && seen.remainingPoints <= 0) throw tooMany(seen)
  try {
    return await work()
  } catch (error) {
    await count(client, address)
    throw error
  }
}

/** Clears the failures of an account after its owner has proved their identity in another way. */
export const clearFailures = async (email: string): Promise<void> => {
  await limiters().account.delete(email.toLowerCase())
}

/** Whether another mail may go to this address: at most five in 15 minutes, to prevent flooding. */
export async function mayMail(email: string): Promise<boolean> {
  try {
    await count(limiters().reset, email.toLowerCase())
    return true
  } catch (error) {
    if (error instanceof TooManyRequests) return false
    throw error
  }
}

async function count(limiter: RateLimiterMongo, key: string): Promise<void> {
  try {
    await limiter.consume(key)
  } catch (refused) {
    if (!(refused instanceof RateLimiterRes)) throw refused
    throw tooMany(refused)
  }
}

const tooMany = ({ msBeforeNext }: RateLimiterRes): TooManyRequests =>
  new TooManyRequests(Math.max(1, Math.ceil(msBeforeNext / 1000)))
