import { activityInfo, cancellationSignal } from '@temporalio/activity'

/** How an activity waits in a queue of its host: until it is cancelled, and in turn with those of other tenants. */
export const turn = (): [signal: AbortSignal, party: string | undefined] => [
  cancellationSignal(),
  activityInfo().priority?.fairnessKey,
]
