import type { makeContainerActivities } from './containers.ts'

/** All that a host does for workflows. */
export type HostActivities = ReturnType<typeof makeContainerActivities>
