import { ActivityFailure, type ActivityOptions, proxyActivities, TimeoutFailure } from '@temporalio/workflow'
import type { HostActivities } from '../activities/host/index.ts'
import { isFailure } from './carry-out.ts'

/** The activities that run on one host. */
export const on = (hostId: string, more: Partial<ActivityOptions> = {}) =>
  proxyActivities<HostActivities>({
    taskQueue: `host-${hostId}`,
    // Wait this long for an unreachable host to return, then fail.
    scheduleToStartTimeout: '15 minutes',
    // The slowest step is the pull of a large image over a slow line.
    startToCloseTimeout: '30 minutes',
    // Detects a killed host worker. Longer than the engine stalls when it is busiest.
    heartbeatTimeout: '10 s',
    retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
    // Wait for a cancelled step to end before its undo begins; otherwise both would run in parallel.
    cancellationType: 'WAIT_CANCELLATION_COMPLETED',
    ...more,
  })

/** The host did not take the step up, or did not reach a machine or the platform. */
export const isAway = (error: unknown): boolean =>
  error instanceof ActivityFailure &&
  (error.cause instanceof TimeoutFailure ||
    isFailure(error.cause, 'engine_unavailable') ||
    isFailure(error.cause, 'platform_unavailable'))
