import mongoose, { type PipelineStage, Schema } from 'mongoose'
import { TooManyRequests } from '../../lib/problem.ts'
import { isDuplicateKey } from '../database.ts'
import { schemaOptions } from '../schemas.ts'

// Counts guesses under a key, with a pause before the next one that doubles with each.

/**
 * Failed attempts, and places from which somebody has logged in. Also counters in the format of rate-limiter-flexible.
 * MongoDB deletes them at `expire`.
 */
export interface AttemptDocument {
  key: string
  points: number
  expire: Date | null
  /** When the next guess is taken. */
  free_at?: Date
}
const schema = new Schema<AttemptDocument>(
  { key: { type: String, required: true }, points: Number, expire: Date, free_at: Date },
  { ...schemaOptions, collection: 'attempts' },
)
schema.index({ key: 1 }, { unique: true })
schema.index({ expire: 1 }, { expireAfterSeconds: 0 })
export const Attempt = mongoose.model<AttemptDocument>('Attempt', schema)

export interface Pace {
  /** So many guesses have no pause. */
  free: number
  /** The pause after the last free one. */
  firstSec: number
  longestSec: number
  /** So long after the last guess. */
  forgottenSec: number
}

/** A guess that was counted. */
export interface Guess {
  key: string
  free_at: Date
}

/** Counts a guess. Throws TooManyRequests during the pause; that counts as none. */
export async function beginGuess(key: string, pace: Pace): Promise<Guess> {
  for (;;) {
    const now = new Date()
    try {
      const counted = await Attempt.findOneAndUpdate(
        { key, free_at: { $not: { $gt: now } } },
        oneMore(pace, now),
        {
          upsert: true,
          returnDocument: 'after',
          updatePipeline: true,
        },
      ).lean()
      return { key, free_at: counted.free_at ?? now }
    } catch (error) {
      // The record exists and did not match: it pauses, or another guess has made it meanwhile.
      if (!isDuplicateKey(error)) throw error
    }
    const { free_at } = (await Attempt.findOne({ key }).lean()) ?? {}
    const pauseMs = (free_at?.getTime() ?? 0) - Date.now()
    if (pauseMs > 0) throw new TooManyRequests(Math.ceil(pauseMs / 1000))
  }
}

function oneMore(pace: Pace, now: Date): PipelineStage.Set[] {
  const points = { $add: [{ $ifNull: ['$points', 0] }, 1] }
  const doublings = { $min: [{ $subtract: ['$points', pace.free] }, 20] }
  const sec = { $min: [{ $multiply: [pace.firstSec, { $pow: [2, doublings] }] }, pace.longestSec] }
  const pauseMs = { $cond: [{ $lt: ['$points', pace.free] }, 0, { $multiply: [sec, 1000] }] }
  const expire = new Date(now.getTime() + pace.forgottenSec * 1000)
  return [{ $set: { points, expire } }, { $set: { free_at: { $add: [now, pauseMs] } } }]
}

/** The guess was none: it neither counts nor delays the next one. */
export async function takeBackGuess({ key, free_at }: Guess): Promise<void> {
  const undone: PipelineStage.Set[] = [
    {
      $set: {
        points: { $max: [0, { $subtract: ['$points', 1] }] },
        // A later guess has set a pause of its own.
        free_at: { $cond: [{ $eq: ['$free_at', free_at] }, new Date(), '$free_at'] },
      },
    },
  ]
  await Attempt.updateOne({ key }, undone, { updatePipeline: true })
}

export async function clearGuesses(key: string): Promise<void> {
  await Attempt.deleteOne({ key })
}
