import { Context } from '@temporalio/activity'
import type { ActivityInterceptors } from '@temporalio/worker'

/**
 * For a worker's `interceptors.activity`: each activity sends heartbeats while it runs, so that Temporal detects a
 * killed worker. A heartbeat shows that the worker lives, not that the work proceeds: the activity's timeout covers a
 * hang. Heartbeats also deliver cancellation to the activity.
 */
export const heartbeats = (): ActivityInterceptors => ({
  inbound: {
    async execute(input, next) {
      const context = Context.current()
      const { heartbeatTimeoutMs } = context.info
      // A third of the timeout: two heartbeats may be lost.
      const beat = heartbeatTimeoutMs
        ? setInterval(() => context.heartbeat(), heartbeatTimeoutMs / 3)
        : undefined
      try {
        return await next(input)
      } finally {
        clearInterval(beat)
      }
    },
  },
})
