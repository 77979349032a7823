import { ApplicationFailure, CancelledFailure, setCurrentDetails } from '@temporalio/workflow'
import type { Ended } from '../activities/operations.ts'
import { failureMessage } from '../lib/operation-workflows.ts'

/**
 * Ends a workflow as its operation or run has ended, so that the Temporal UI tells which have failed and which were cancelled.
 * Its current details are then the end. Call it last: it throws, unless that succeeded.
 */
export function endAs({ state, code }: Ended): void {
  setCurrentDetails(state === 'failed' && code ? failureMessage(code) : state)
  if (state === 'succeeded') return
  // Temporal takes it as a cancel if somebody has cancelled the workflow, else as a failure.
  if (state === 'cancelled') throw new CancelledFailure('It was cancelled')
  // Without the tenant's words: the SDK writes the failure to the worker's log.
  throw ApplicationFailure.nonRetryable(failureMessage(code ?? 'internal'), code)
}
