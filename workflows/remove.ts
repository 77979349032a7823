import { isFailure } from './carry-out.ts'
import type { Work } from './durable.ts'

/** Deletes another resource, after what is under way on it. Succeeds if there is none. */
export async function remove({ carryOut }: Work<unknown>, kind: string, id: string): Promise<void> {
  try {
    await carryOut({ kind, id }, 'delete', {}, { waitsForOthers: true, undo: null })
  } catch (error) {
    if (!isFailure(error, 'not_found')) throw error
  }
}
