import { addAbortListener } from 'node:events'
import { activityInfo, cancellationSignal } from '@temporalio/activity'
import { makeQueue, type Queue } from '../../lib/queue.ts'

/** How an activity waits in a queue of its host: until it is cancelled, and in turn with those of other tenants. */
export const turn = (): [signal: AbortSignal, party: string | undefined] => [
  cancellationSignal(),
  activityInfo().priority?.fairnessKey,
]

// Each sends heartbeats: with 200, the gateway and the host took 0.22 of a core, with eight 0.09.
const mostWaiting = 8
/** Slow starts do not keep other work from the host for longer. */
const longestMs = 5_000

/** The turns in which a host does what keeps its cores busy. */
export interface Turns {
  take: Queue
  /**
   * Says when the host should take another task. While much work waits: one caller for each piece that begins, but each
   * within 5 s. Rejects if the signal aborts.
   */
  untilFewer(signal: AbortSignal): Promise<void>
}

/** At most `atOnce` run at once, and as many beyond that for tenants of which nothing runs. */
export function makeTurns(atOnce: number): Turns {
  const queue = makeQueue(atOnce, { newcomers: atOnce })
  const waiting = new Set<object>()
  const asking = new Set<() => void>()

  function leave(piece: object): void {
    if (!waiting.delete(piece)) return
    const [first] = asking
    first?.()
    if (first) asking.delete(first)
    if (waiting.size === 0) for (const answer of asking) answer()
  }

  return {
    take(work, ...ofWhom) {
      const piece = {}
      waiting.add(piece)
      const begin = () => {
        leave(piece)
        return work()
      }
      return queue(begin, ...ofWhom).finally(() => leave(piece))
    },

    async untilFewer(signal) {
      if (waiting.size < mostWaiting) return
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      asking.add(resolve)
      const timer = setTimeout(resolve, longestMs).unref()
      const listening = addAbortListener(signal, () => reject(signal.reason as Error))
      await promise.finally(() => {
        asking.delete(resolve)
        clearTimeout(timer)
        listening[Symbol.dispose]()
      })
    },
  }
}
