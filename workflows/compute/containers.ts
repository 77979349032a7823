import type { ContainerActivities } from '../../activities/compute/containers.ts'
import type { FoundContainer } from '../../drivers/containers.ts'
import { unbound } from '../../lib/ports.ts'
import { on } from '../hosts.ts'
import { instanceWorkflows, platformSteps } from './instances.ts'
import { boundAt } from './ports.ts'

const platform = platformSteps<ContainerActivities>()
type Spec = Awaited<ReturnType<ContainerActivities['placeContainer']>>['spec']

export const {
  create: createContainer,
  start: startContainer,
  repair: repairContainer,
  stop: stopContainer,
  update: updateContainer,
  reschedule: rescheduleContainer,
  delete: deleteContainer,
  attachDisk: attachDiskContainer,
  detachDisk: detachDiskContainer,
  attachNic: attachNicContainer,
  detachNic: detachNicContainer,
} = instanceWorkflows<Spec, FoundContainer>({
  title: 'container',
  place: platform.placeContainer,
  placeElsewhere: platform.placeContainerElsewhere,
  arrive: platform.arriveContainer,
  stay: platform.stayContainer,
  release: platform.releaseContainer,
  running: platform.runningContainer,
  on(hostId) {
    const host = on(hostId)
    return {
      pull: host.pullImageOnHost,
      run: host.runContainerOnHost,
      stop: host.stopContainerOnHost,
      resize: host.resizeContainerOnHost,
      remove: host.removeContainerOnHost,
    }
  },

  /** Where its published ports are reached. */
  fieldsOf: ({ ports }, found, host_address) => ({
    bindings: found ? boundAt(found.ports, host_address) : unbound(ports),
  }),

  outdated({ image, ports }, before) {
    return {
      ...(image ? { image_digest: null } : {}),
      ...(ports && before !== 'running' ? { bindings: unbound(ports) } : {}),
    }
  },
})
