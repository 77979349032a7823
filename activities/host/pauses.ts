import { setTimeout as delay } from 'node:timers/promises'
import { cancellationSignal } from '@temporalio/activity'

const firstMs = 50
const growth = 1.5

/**
 * Pauses between looks at what an activity waits for. They begin short, because most of it is there soon, and grow to
 * `longestMs`, because a look takes the machine's time too. An activity that is cancelled ends its pause.
 */
export function makePauses(longestMs: number): () => Promise<void> {
  let nextMs = firstMs
  return async () => {
    await delay(nextMs, undefined, { signal: cancellationSignal() })
    nextMs = Math.min(nextMs * growth, longestMs)
  }
}
