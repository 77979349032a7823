import type { HostActivities } from '../../activities/host/index.ts'
import type { Words } from './words.ts'

export const hostWords: Words<HostActivities> = {
  pullImageOnHost: (image) => `Pull image ${image}`,
  findContainerOnHost: (id) => `Look for container ${id}`,

  prepareMachineOnHost: (kind, image) => `Prepare image ${image} for a ${kind}`,
  runMachineOnHost: ({ id, kind }) => `Run ${kind} ${id}`,
  rebootMachineOnHost: ({ id, kind }) => `Reboot ${kind} ${id}`,
  forkMachineOnHost: (fromId, { id, kind }) => `Fork ${kind} ${id} from ${fromId}`,
  resumeMachineOnHost: ({ id, kind }) => `Resume ${kind} ${id}`,
  findMachineOnHost: (id) => `Look for machine ${id}`,
  serveMachineOnHost: (id) => `Offer machine ${id} to the host that it moves to`,
  stopServingMachineOnHost: (id) => `Stop offering machine ${id}`,
  pullMachineOnHost: (id) => `Get machine ${id} from its former host`,

  resizeDiskOnHost: (id, gib) => `Resize disk ${id} to ${gib} GiB`,
  takeSnapshotOnHost: (id) => `Take a snapshot of disk ${id}`,
  removeSnapshotOnHost: (id) => `Remove a snapshot of disk ${id}`,
  attachDiskOnHost: (id, instanceId) => `Attach disk ${id} to instance ${instanceId}`,
  detachDiskOnHost: (id, instanceId) =>
    `Detach disk ${id}${instanceId ? ` from instance ${instanceId}` : ''}`,
  releaseDiskOnHost: (id) => `Stop serving disk ${id}`,
  serveDiskOnHost: (id) => `Offer disk ${id} to the host that it moves to`,
  stopServingDiskOnHost: (id) => `Stop offering disk ${id}`,
  pullDiskOnHost: (id) => `Get disk ${id} from its former host`,

  applyNetworksOnHost: () => 'Apply all networks',
  attachNicsOnHost: (instanceId) => `Attach the NICs of instance ${instanceId}`,
  applyPathOnHost: (pathId) => `Apply the path of attachment ${pathId}`,
  unplugNicOnHost: (instanceId, nicId) => `Unplug NIC ${nicId} of instance ${instanceId}`,
  detachNicOnHost: (nicId) => `Detach NIC ${nicId}`,
  applyLoadBalancersOnHost: () => 'Apply all load balancers',

  formSwarmOnHost: (serverId, machineId) =>
    `Form the Swarm of deploy server ${serverId} on machine ${machineId}`,
  joinSwarmOnHost: (serverId, machineId) =>
    `Join machine ${machineId} to the Swarm of deploy server ${serverId}`,
  copySwarmOnHost: (serverId) => `Copy what the control plane of deploy server ${serverId} knows`,
  bringBackSwarmOnHost: (serverId, machineId) =>
    `Bring the Swarm of deploy server ${serverId} back on machine ${machineId}`,
  knowsNodeOnHost: (_managerId, machineId) => `Look for machine ${machineId} in its Swarm`,
  forgetSwarmOnHost: (machineId) => `Have machine ${machineId} forget its Swarm`,
  leaveSwarmOnHost: (machineId) => `Have machine ${machineId} leave its Swarm`,
  admitNodeOnHost: (_managerId, machineId) => `Let machine ${machineId} take work`,
  drainNodeOnHost: (_managerId, machineId) => `Move all work away from machine ${machineId}`,
  removeNodeOnHost: (_managerId, machineId) => `Remove machine ${machineId} from its Swarm`,
  applyServicesOnHost: (serverId) => `Apply the services of deploy server ${serverId}`,
  lastLinesOnHost: (_machineId, serviceId) => `Read the last output of service ${serviceId}`,
  keepVolumesOnHost: (_machineId, ownerId, names, _withinSec, kind = 'application') =>
    `Destroy the volumes of ${kind} ${ownerId}, except ${names.length}`,
  awaitEndedOnHost: (_machineId, kind, ownerId) => `Wait until ${kind} ${ownerId} has ended`,
  awaitContainersOnHost: (_managerId, awaited) =>
    `Wait for ${counted(awaited.length, 'container')} of a service`,
  runInReplicaOnHost: ({ service_id }) => `Run a command in service ${service_id}`,
  endInReplicaOnHost: ({ service_id }) => `End a command in service ${service_id}`,
  awaitServingOnHost: (_managerId, places) => `Wait until ${counted(places.length, 'replica')} can serve`,
  provideImageOnHost: (machineId, image) => `Bring image ${image} to machine ${machineId}`,
  awaitServiceEndedOnHost: (_machineId, serviceId) => `Wait until service ${serviceId} has ended`,
  awaitHealthyOnHost: (_machineId, serviceId) => `Wait until database ${serviceId} answers`,
  applyDatabaseUsersOnHost: (databaseId) => `Apply the users of database ${databaseId}`,

  unpackArtifactOnHost: (_serverId, artifactId) => `Unpack artifact ${artifactId}`,
  unpackUploadOnHost: (artifactId) => `Unpack the upload of artifact ${artifactId}`,
  removeUploadOnHost: (_machineId, artifactId) => `Remove the upload of artifact ${artifactId}`,
  removeArtifactOnHost: (_machineId, _name, artifactId) => `Remove the folder of artifact ${artifactId}`,
  ensureRegistryOnHost: (serverId) => `Run the registry of deploy server ${serverId}`,
  copyImagesOnHost: (_serverId, machineId) => `Copy images to the registry of machine ${machineId}`,
  buildImageOnHost: (_serverId, id) => `Build image ${id}`,
  endBuildOnHost: (_machineId, id) => `End build ${id}`,
  forgetImagesOnHost: (machineId) => `Remove images that machine ${machineId} no longer uses`,
  tidyImagesOnHost: (_serverId, machineId) => `Remove images from the registry of machine ${machineId}`,

  dumpOnHost: (_serverId, executionId) => `Dump the database for backup ${executionId}`,
  endDumpOnHost: (_machineId, _serviceId, executionId) => `End the dump of backup ${executionId}`,
  verifyOnHost: (_serverId, executionId) => `Restore backup ${executionId} on trial`,
  refillOnHost: (_serverId, executionId, databaseId) =>
    `Fill database ${databaseId} from backup ${executionId}`,
  removeScratchOnHost: (_machineId, id) => `Remove the trial database of ${id}`,

  probeToolOnHost: (probeId) => `Carry out probe ${probeId}`,
}

const counted = (count: number, thing: string): string => `${count} ${thing}${count === 1 ? '' : 's'}`
