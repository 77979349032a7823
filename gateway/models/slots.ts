import { CallRefused } from './dialects.ts'

/** Bounds the calls that are under way at once for each connector, on this gateway. */
export function makeSlots(most: number) {
  const taken = new Map<string, number>()
  return {
    /** Takes a place, and returns how to give it back. Throws CallRefused. */
    take(connectorId: string): () => void {
      const held = taken.get(connectorId) ?? 0
      if (held >= most)
        throw new CallRefused(429, 'too_many_calls', `The connector has ${held} calls under way`, {
          retryAfterSec: 1,
        })
      taken.set(connectorId, held + 1)
      return () => {
        const left = (taken.get(connectorId) ?? 1) - 1
        if (left) taken.set(connectorId, left)
        else taken.delete(connectorId)
      }
    },
  }
}
export type Slots = ReturnType<typeof makeSlots>
