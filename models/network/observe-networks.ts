import { ObservedPath } from '../../lib/host-protocol.ts'
import { observer, type Observer } from '../compute/observer.ts'
import { networksOf } from './host-networks.ts'
import { recordReachable } from './paths.ts'

/** Records what a host has found of its paths. A host mends its networks itself. */
export const networkObserver: Observer = {
  ...observer({
    kinds: ['path'],
    schema: ObservedPath,
    async observe(hostId, seen) {
      if (seen.length === 0) return { not_yours: [] }
      const wanted = new Set((await networksOf(hostId)).paths.map(({ id }) => id))
      const its = seen.filter(({ id }) => wanted.has(id))
      await recordReachable(its.map(({ id, state }) => ({ id, reachable: state === 'reachable' })))
      // The host removes all others with its next look at its networks.
      return { not_yours: seen.flatMap(({ id }) => (wanted.has(id) ? [] : [id])) }
    },
  }),
  wanted: async (hostId) => (await networksOf(hostId)).version,
}
