import { z } from 'zod'
import { ObservedPath, RestoredNic } from '../../lib/network-protocol.ts'
import { noteOnce } from '../activity.ts'
import { findInstances } from '../compute/instance-kinds.ts'
import { observer, type Observer } from '../compute/observer.ts'
import { networksOf } from './host-networks.ts'
import { recordReachable } from './paths.ts'

/**
 * Records what a host has found of its paths, and which NICs it has restored. A host mends its networks itself, and tells of it
 * for some minutes.
 */
export const networkObserver: Observer = {
  ...observer({
    kinds: ['path', 'nic'],
    schema: z.discriminatedUnion('kind', [ObservedPath, RestoredNic]),
    async observe(hostId, seen) {
      await noteRestored(
        hostId,
        seen.filter((one) => one.kind === 'nic'),
      )
      const paths = seen.filter((one) => one.kind === 'path')
      if (paths.length === 0) return { not_yours: [] }
      const wanted = new Set((await networksOf(hostId)).paths.map(({ id }) => id))
      const its = paths.filter(({ id }) => wanted.has(id))
      await recordReachable(its.map(({ id, state }) => ({ id, reachable: state === 'reachable' })))
      // The host removes all others with its next look at its networks.
      return { not_yours: paths.flatMap(({ id }) => (wanted.has(id) ? [] : [id])) }
    },
  }),
  wanted: async (hostId) => (await networksOf(hostId)).version,
}

async function noteRestored(hostId: string, nics: RestoredNic[]): Promise<void> {
  if (nics.length === 0) return
  const ids = nics.map(({ instance_id }) => instance_id)
  const instances = await findInstances({ _id: { $in: ids }, host_id: hostId })
  const byId = new Map(instances.map((one) => [one.instance._id, one]))
  for (const { id: nic_id, instance_id, at } of nics) {
    const one = byId.get(instance_id)
    if (!one) continue
    const { tenant_id } = one.instance
    const message = `The ${one.kind.title} had lost a network interface, and its host attached it again`
    const event = { tenant_id, resource_id: instance_id, kind: 'network_restored', message, data: { nic_id } }
    await noteOnce(`${nic_id} ${at}`, { ...event, time: new Date(at) })
  }
}
