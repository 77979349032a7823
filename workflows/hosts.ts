import { type ActivityOptions, proxyActivities } from '@temporalio/workflow'
import type { HostActivities } from '../activities/host/index.ts'

/** The activities of one host's machine. */
export const on = (hostId: string, more: Partial<ActivityOptions> = {}) =>
  proxyActivities<HostActivities>({
    taskQueue: `host-${hostId}`,
    // A host that is away this long will not be back soon; until then its return is waited for.
    scheduleToStartTimeout: '15 minutes',
    // The slowest step is the pull of a large image over a slow line.
    startToCloseTimeout: '30 minutes',
    // A killed host worker is noticed by its silence; its engine's busiest second is shorter than this.
    heartbeatTimeout: '10 s',
    retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
    // A cancelled step ends before its undo begins: otherwise both would run at once.
    cancellationType: 'WAIT_CANCELLATION_COMPLETED',
    ...more,
  })
