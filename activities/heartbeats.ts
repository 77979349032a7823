import { Context } from '@temporalio/activity'
import type { ActivityInterceptors } from '@temporalio/worker'

// Heartbeats also deliver cancellation to the activity.
const cancelledWithinMs = 3_500

/**
 * For a worker's `interceptors.activity`: each activity sends heartbeats while it runs, so that Temporal detects a
 * killed worker. A heartbeat shows that the worker lives, not that the work proceeds: the activity's timeout covers a
 * hang.
 */
export const heartbeats = (): ActivityInterceptors => ({
  inbound: {
    async execute(input, next) {
      const context = Context.current()
      const { heartbeatTimeoutMs } = context.info
      // A third of the timeout: two heartbeats may be lost.
      const beat = heartbeatTimeoutMs
        ? setInterval(() => context.heartbeat(), Math.min(heartbeatTimeoutMs / 3, cancelledWithinMs))
        : undefined
      try {
        return await next(input)
      } finally {
        clearInterval(beat)
      }
    },
  },
})
