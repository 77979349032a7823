import { isCancellation, proxyActivities } from '@temporalio/workflow'
import type { HostActivities } from '../../activities/host/index.ts'

const soon = (hostId: string) =>
  proxyActivities<HostActivities>({
    taskQueue: `host-${hostId}`,
    // Do not wait for an unreachable host: it asks when it is back, and its next report shows what it missed.
    scheduleToStartTimeout: '3 s',
    startToCloseTimeout: '20 s', // enough to recreate all networks of a host
    heartbeatTimeout: '10 s', // detects a killed host worker
    retry: { maximumAttempts: 1 },
  })

/** Tells hosts to apply the networks as recorded now. An unreachable host applies them when it is back. */
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
