import type { makeContainerActivities } from './containers.ts'
import type { makeDiskActivities } from './disks.ts'
import type { makeMachineActivities } from './machines.ts'
import type { makeNetworkActivities } from './networks.ts'

/** All that a host does for workflows. */
export type HostActivities = ReturnType<typeof makeContainerActivities> &
  ReturnType<typeof makeDiskActivities> &
  ReturnType<typeof makeMachineActivities> &
  ReturnType<typeof makeNetworkActivities>
