import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible'
import { TooManyRequests } from '../lib/problem.ts'

/**
 * Counts in this process: with n replicas of the api a caller may get n times as much, which is as exact as
 * a defence against overload needs to be and costs no query.
 */
export function makeLimiter(points: number, perSec: number): (key: string) => Promise<void> {
  const limiter = new RateLimiterMemory({ points, duration: perSec })
  return async (key) => {
    try {
      await limiter.consume(key)
    } catch (refused) {
      if (!(refused instanceof RateLimiterRes)) throw refused
      throw new TooManyRequests(Math.max(1, Math.ceil(refused.msBeforeNext / 1000)))
    }
  }
}
