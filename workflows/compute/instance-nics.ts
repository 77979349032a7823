import { proxyLocalActivities } from '@temporalio/workflow'
import type { PlatformNetworkActivities } from '../../activities/network/networks.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'
import { tellHosts } from '../network/hosts.ts'

const platform = proxyLocalActivities<PlatformNetworkActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

// The API created the NIC's record and address on acceptance. Hosts apply what the records say.

/** Unplugs a NIC from a running instance, for kinds that need this before the host removes its end. */
export type Unplug = (hostId: string, id: string, nicId: string) => Promise<void>

export const nicWorkflows = (unplug: Unplug = async () => {}) => ({
  attachNic: durable<{ nic_id: string }>(async (work) => {
    const { id, input, before, undo, progress } = work
    undo(() => platform.releaseNic(input.nic_id))
    const { host_id, others } = await platform.placesOfInstance(id)
    progress('attaching the NIC')
    const told = tellHosts(others)
    if (host_id) {
      undo(async () => {
        if (before === 'running') await unplug(host_id, id, input.nic_id)
        await platform.wantNic(input.nic_id, false)
        await on(host_id).detachNicOnHost(input.nic_id)
      })
      await (before === 'running' ? on(host_id).attachNicsOnHost(id) : on(host_id).applyNetworksOnHost())
    }
    await told
    const nics = await platform.nicsOfInstance(id)
    return { status: before, nics }
  }),

  detachNic: durable<{ nic_id: string }>(async (work) => {
    const { id, input, before, undo, progress } = work
    const { host_id, others } = await platform.placesOfInstance(id)
    progress('detaching the NIC')
    undo(async () => {
      await platform.wantNic(input.nic_id, true)
      if (host_id && before === 'running') await on(host_id).attachNicsOnHost(id)
    })
    if (host_id && before === 'running') await unplug(host_id, id, input.nic_id)
    await platform.wantNic(input.nic_id, false)
    // Release the address only after the host has removed the NIC.
    if (host_id) await on(host_id).detachNicOnHost(input.nic_id)
    await platform.releaseNic(input.nic_id)
    await tellHosts(others)
    return { status: before, nics: await platform.nicsOfInstance(id) }
  }),
})
