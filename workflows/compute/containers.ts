import type { Specs } from '../../activities/compute/instances.ts'
import type { FoundContainer } from '../../drivers/containers.ts'
import { on } from '../hosts.ts'
import { instanceWorkflows } from './instances.ts'

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
  attachDatabase: attachDatabaseContainer,
  detachDatabase: detachDatabaseContainer,
} = instanceWorkflows<Specs['container'], FoundContainer>({
  kind: 'container',
  title: 'container',
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
})
