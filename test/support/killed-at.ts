import { expect } from '@jest/globals'
import { Operation as OperationRecord } from '../../models/operations.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import type { Operation } from './client.ts'
import type { OperationBody } from './clients/operations.ts'

const attemptsAtMost = 5

/** Kills when the operation has come to a step that begins so. Returns its end, and whether it ran when the kill came. */
export async function endAfterKill(
  step: string,
  kill: () => Promise<void>,
  operation: Operation,
): Promise<{ ran: boolean; end: OperationBody }> {
  // The record is read without a pause, since a step may take milliseconds.
  for (;;) {
    const record = await OperationRecord.findById(operation.id).setOptions(everyTenant).lean()
    if (!record?.open || record.step?.startsWith(step)) break
  }
  const at = new Date()
  await kill()
  const end = await operation.end()
  return { ran: new Date(String(end['ended_at'])) > at, end }
}

/**
 * Kills when the operation has come to a step that begins so, and waits until it has succeeded. Returns whether it ran when
 * the kill came: a short step may have passed unseen.
 */
export async function killedAt(
  step: string,
  kill: () => Promise<void>,
  operation: Operation,
): Promise<boolean> {
  const { ran, end } = await endAfterKill(step, kill, operation)
  expect(end).toMatchObject({ state: 'succeeded', error: null })
  return ran
}

/** Tries again what a kill came too late for. `attempt` returns whether it came in time. */
export async function inTime(attempt: () => Promise<boolean>): Promise<void> {
  for (let tries = 1; !(await attempt()); tries++)
    if (tries === attemptsAtMost) throw new Error(`the operation ended before each of ${tries} kills`)
}
