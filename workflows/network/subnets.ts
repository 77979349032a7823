import { proxyLocalActivities } from '@temporalio/workflow'
import type { PlatformNetworkActivities } from '../../activities/network/networks.ts'
import type { Outcome } from '../../activities/operations.ts'
import { durable, type Work } from '../durable.ts'
import { tellHosts } from './hosts.ts'

const { hostsOfSubnet } = proxyLocalActivities<PlatformNetworkActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

// The API changed the record on acceptance, and hosts apply what the records say: these workflows need no undo.

export const updateSubnet = durable(onItsHosts, { final: true })
export const attachDhcpSubnet = durable(onItsHosts, { final: true })
export const detachDhcpSubnet = durable(onItsHosts, { final: true })

async function onItsHosts({ id, before, progress }: Work<unknown>): Promise<Outcome> {
  progress('changing the subnet on its hosts')
  await tellHosts(await hostsOfSubnet(id))
  return { status: before }
}

export const deleteSubnet = durable(
  async ({ id, progress }) => {
    progress('removing the subnet from its hosts')
    await tellHosts(await hostsOfSubnet(id))
    return 'deleted'
  },
  { final: true },
)
