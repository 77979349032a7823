import { isCancellation, proxyActivities } from '@temporalio/workflow'
import type { HostActivities } from '../../activities/host/index.ts'

const soon = (hostId: string) =>
  proxyActivities<HostActivities>({
    taskQueue: `host-${hostId}`,
    // Nobody waits for a host that is away: it asks when it is back, and its next report says if it missed something.
    scheduleToStartTimeout: '3 s',
    startToCloseTimeout: '20 s', // all networks of a host, where all have to be made anew
    heartbeatTimeout: '10 s', // a killed host worker is noticed by its silence
    retry: { maximumAttempts: 1 },
  })

/**
 * Tells hosts to apply the networks that are wanted now. A host that is away applies them when it is back.
 */
export async function tellHosts(hostIds: string[]): Promise<void> {
  await Promise.all(
    hostIds.map((hostId) =>
      soon(hostId)
        .applyNetworksOnHost()
        .catch((error: unknown) => {
          if (isCancellation(error)) throw error
        }),
    ),
  )
}
