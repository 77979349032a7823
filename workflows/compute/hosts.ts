import { proxyActivities } from '@temporalio/workflow'
import type { PlatformHostActivities } from '../../activities/compute/hosts.ts'
import { durable } from '../durable.ts'

const { evacuateInstances } = proxyActivities<PlatformHostActivities>({
  // As long as it takes to move all that is there, a few at a time.
  startToCloseTimeout: '1 day',
  heartbeatTimeout: '10 s', // noticed soon when the worker is killed; the next goes on with what is left
  retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
})

/** Moves all instances of a host to others. It stays closed to new ones. */
export const evacuateHost = durable(async ({ id, before, progress }) => {
  progress('moving its instances to other hosts')
  await evacuateInstances(id)
  return { status: before }
})
