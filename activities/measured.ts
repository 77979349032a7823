import { Context } from '@temporalio/activity'
import type { ActivityInterceptors } from '@temporalio/worker'
import { metrics } from '../lib/metrics.ts'

/** For a worker's `interceptors.activity`, in first place: measures the duration and outcome of each activity. */
export const measured = (): ActivityInterceptors => ({
  inbound: {
    async execute(input, next) {
      const end = metrics.activities.startTimer({ activity: Context.current().info.activityType })
      try {
        const result = await next(input)
        end({ outcome: 'completed' })
        return result
      } catch (error) {
        end({ outcome: 'failed' })
        throw error
      }
    },
  },
})
