import { ApplicationFailure } from '@temporalio/activity'
import type { ActivityInterceptors } from '@temporalio/worker'
import { Problem } from '../lib/problem.ts'

/** What drivers and clients throw when they know what went wrong: EngineError and the like. */
interface Fault extends Error {
  /** Stable: it becomes the operation's problem `code`. */
  code: string
  /** The same however often it is tried. */
  permanent: boolean
}

/**
 * Turns a fault into what Temporal acts on: a permanent one is not tried again. Its code becomes the failure's
 * type, its other fields the details. Anything else is passed on, and tried again.
 */
export const failureOf = (error: unknown): unknown => (isFault(error) ? toFailure(error) : error)

/** For a worker's `interceptors.activity`: every activity's faults come out as failures. */
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

/** Runs what may be refused as a request is refused. Trying again does not help: the refusal fails the step at once, by its code. */
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
