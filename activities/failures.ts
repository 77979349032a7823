import { ApplicationFailure } from '@temporalio/activity'
import type { ActivityInterceptors } from '@temporalio/worker'
import { Problem } from '../lib/problem.ts'

/** An error with a known cause, as drivers and clients throw it: EngineError and the like. */
interface Fault extends Error {
  /** Stable: becomes the operation's problem `code`. */
  code: string
  /** A retry cannot help. */
  permanent: boolean
}

/** The names of Mongoose's errors about what is written or asked for: a retry meets the same values. */
const refusals = new Set(['ValidationError', 'CastError', 'StrictModeError'])

/**
 * Turns a fault into a Temporal failure, which is not retried if the fault is permanent. The code becomes the failure's
 * type, the other fields its details. A document that its model refuses is `internal`, and not retried. Any other error
 * is returned unchanged, and retried.
 */
export function failureOf(error: unknown): unknown {
  if (isFault(error)) return toFailure(error)
  if (error instanceof Error && refusals.has(error.name))
    return ApplicationFailure.create({
      message: error.message,
      type: 'internal',
      nonRetryable: true,
      cause: error,
    })
  return error
}

/** For a worker's `interceptors.activity`: turns the faults of every activity into failures. */
export const failures = (): ActivityInterceptors => ({
  inbound: {
    async execute(input, next) {
      try {
        return await next(input)
      } catch (error) {
        throw failureOf(error)
      }
    },
  },
})

/** Runs work that may throw a Problem, which fails the step without retries. The code becomes the failure's type. */
export async function permanently<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof Problem) throw ApplicationFailure.nonRetryable(error.message, error.code)
    throw error
  }
}

function toFailure(fault: Fault): ApplicationFailure {
  const { name: _, code, permanent, ...fields } = fault
  return ApplicationFailure.create({
    message: fault.message,
    type: code,
    nonRetryable: permanent,
    details: [fields],
    cause: fault,
  })
}

const isFault = (error: unknown): error is Fault =>
  error instanceof Error &&
  'code' in error &&
  typeof error.code === 'string' &&
  'permanent' in error &&
  typeof error.permanent === 'boolean'
