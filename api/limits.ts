import type { ServerResponse } from 'node:http'
import mongoose from 'mongoose'
import { RateLimiterMemory, RateLimiterMongo, RateLimiterRes } from 'rate-limiter-flexible'
import { TooManyRequests } from '../lib/problem.ts'

/** Counts one request of `key`, and sets the RateLimit headers. Throws TooManyRequests. */
export type Limiter = (key: string, response: Pick<ServerResponse, 'setHeader'>) => Promise<void>

/**
 * Counts in this process, which costs no query: with n api replicas a caller may get n times the limit, which is exact
 * enough against overload.
 */
export const makeLimiter = (points: number, perSec: number): Limiter =>
  limiterOf(new RateLimiterMemory({ points, duration: perSec }))

/**
 * Counts in MongoDB for all api replicas: for operations that invite guessing. After the last attempt, requests are
 * refused from memory until the window ends. The database must be connected.
 */
export const makeSharedLimiter = (name: string, points: number, perSec: number): Limiter =>
  limiterOf(
    new RateLimiterMongo({
      storeClient: mongoose.connection.getClient(),
      dbName: mongoose.connection.name,
      tableName: 'attempts',
      disableIndexesCreation: true, // models/identity/guesses.ts creates them
      keyPrefix: name,
      points,
      duration: perSec,
      inMemoryBlockOnConsumed: points,
    }),
  )

const limiterOf =
  (limiter: RateLimiterMemory | RateLimiterMongo): Limiter =>
  async (key, response) => {
    let result: RateLimiterRes
    let refused = false
    try {
      result = await limiter.consume(key)
    } catch (error) {
      if (!(error instanceof RateLimiterRes)) throw error
      result = error
      refused = true
    }
    const resetSec = Math.max(1, Math.ceil(result.msBeforeNext / 1000))
    response.setHeader('RateLimit-Limit', limiter.points)
    response.setHeader('RateLimit-Remaining', refused ? 0 : result.remainingPoints)
    response.setHeader('RateLimit-Reset', resetSec)
    if (refused) throw new TooManyRequests(resetSec)
  }
