import { ApplicationFailure } from '@temporalio/workflow'
import { isFailure } from '../../workflows/carry-out.ts'
import { durable } from '../../workflows/durable.ts'

// A workflow of the tests' own: an operation that creates two containers by operations of their own.

export interface PairInput {
  containers: object[]
  fails: boolean
  /** Goes on when a container cannot be created. */
  bears: boolean
}

export const createPair = durable<PairInput>(async ({ input: { containers, fails, bears }, carryOut }) => {
  for (const container of containers) {
    try {
      await carryOut({ kind: 'container' }, 'create', container)
    } catch (error) {
      if (!bears || !isFailure(error)) throw error
    }
  }
  if (fails) throw ApplicationFailure.nonRetryable('The pair does not fit together', 'misfit')
  return { status: 'active' }
})
