import type { makeArtifactsOnHost } from './artifacts.ts'
import type { makeBackupsOnHost } from './backups.ts'
import type { makeBuildsOnHost } from './builds.ts'
import type { makeContainersOnHost } from './containers.ts'
import type { makeDatabaseUsersOnHost } from './database-users.ts'
import type { makeDatabasesOnHost } from './databases.ts'
import type { makeDeployNodesOnHost } from './deploy-nodes.ts'
import type { makeDeployServicesOnHost } from './deploy-services.ts'
import type { makeDisksOnHost } from './disks.ts'
import type { makeLoadBalancersOnHost } from './load-balancers.ts'
import type { makeMachinesOnHost } from './machines.ts'
import type { makeNetworksOnHost } from './networks.ts'
import type { makeToolProbesOnHost } from './tool-probes.ts'

/** All host activities that workflows call. */
export type HostActivities = ReturnType<typeof makeContainersOnHost> &
  ReturnType<typeof makeArtifactsOnHost> &
  ReturnType<typeof makeBackupsOnHost> &
  ReturnType<typeof makeBuildsOnHost> &
  ReturnType<typeof makeDatabasesOnHost> &
  ReturnType<typeof makeDatabaseUsersOnHost> &
  ReturnType<typeof makeDeployNodesOnHost> &
  ReturnType<typeof makeDeployServicesOnHost> &
  ReturnType<typeof makeDisksOnHost> &
  ReturnType<typeof makeLoadBalancersOnHost> &
  ReturnType<typeof makeMachinesOnHost> &
  ReturnType<typeof makeNetworksOnHost> &
  ReturnType<typeof makeToolProbesOnHost>
