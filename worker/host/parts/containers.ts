import { makeContainersOnHost } from '../../../activities/host/containers.ts'
import type { ObservedInstances } from '../instances.ts'
import type { HostPart } from '../part.ts'

type Parts = Parameters<typeof makeContainersOnHost>[0] & { instances: ObservedInstances }

export const containersPart = ({ instances, ...of }: Parts): HostPart => ({
  name: 'containers',
  kinds: ['container'],
  activities: makeContainersOnHost(of),
  ...instances,
})
