import { proxyLocalActivities } from '@temporalio/workflow'
import type { Writes } from './writes.ts'

const { begin, end } = proxyLocalActivities<Pick<Writes, 'begin' | 'end'>>({ startToCloseTimeout: '10 s' })

/** A change of a stopped container without the platform: two writes by the worker, no host activity. */
export async function bareUpdate(operationId: string): Promise<void> {
  await begin(operationId)
  await end(operationId)
}
