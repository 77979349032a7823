import type { ServerResponse } from 'node:http'
import mongoose from 'mongoose'
import { RateLimiterMemory, RateLimiterMongo, RateLimiterRes } from 'rate-limiter-flexible'
import { TooManyRequests } from '../lib/problem.ts'

/** Counts one request of `key`, and says in the answer's headers how many are left. Throws TooManyRequests. */
export type Limiter = (key: string, response: Pick<ServerResponse, 'setHeader'>) => Promise<void>

/**
 * Counts in this process: with n replicas of the api a caller may get n times as much, which is as exact as
 * a defence against overload needs to be and costs no query.
 */
export const makeLimiter = (points: number, perSec: number): Limiter =>
  limiterOf(new RateLimiterMemory({ points, duration: perSec }))

/**
 * Counts in MongoDB, for all replicas of the api together: for what invites guessing. Who has used up his attempts is
 * refused from memory until the time is over. The database must be connected.
 */
export const makeSharedLimiter = (name: string, points: number, perSec: number): Limiter =>
  limiterOf(
    new RateLimiterMongo({
      storeClient: mongoose.connection.getClient(),
      dbName: mongoose.connection.name,
      tableName: 'attempts',
      disableIndexesCreation: true, // models/identity/attempts.ts has them
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
