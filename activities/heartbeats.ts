import { Context } from '@temporalio/activity'
import type { ActivityInterceptors } from '@temporalio/worker'

/**
 * For a worker's `interceptors.activity`: each activity beats while it runs, so that a killed worker is
 * noticed by its silence. It says that the worker lives, not that the work gets on; that it never ends is
 * what the activity's own timeout is for. Beating is also how an activity learns that it is cancelled.
 */
export const heartbeats = (): ActivityInterceptors => ({
  inbound: {
    async execute(input, next) {
      const context = Context.current()
      const { heartbeatTimeoutMs } = context.info
      // A third: two beats may be lost before anybody worries.
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
