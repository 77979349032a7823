import type { PlatformHostActivities } from '../../activities/compute/hosts.ts'
import type { InstanceDiskActivities } from '../../activities/compute/instance-disks.ts'
import type { InstanceActivities } from '../../activities/compute/instances.ts'
import type { MachineActivities } from '../../activities/compute/machines.ts'
import type { CertificateActivities } from '../../activities/network/certificates.ts'
import type { LoadBalancerActivities } from '../../activities/network/load-balancers.ts'
import type { PlatformNetworkActivities } from '../../activities/network/networks.ts'
import type { DiskActivities } from '../../activities/storage/disks.ts'
import type { Words } from './words.ts'

/** Of compute, storage and network. */
export const resourceWords: Words<
  PlatformHostActivities &
    InstanceActivities &
    InstanceDiskActivities &
    MachineActivities &
    DiskActivities &
    PlatformNetworkActivities &
    LoadBalancerActivities &
    CertificateActivities
> = {
  movablesOn: (hostId) => `List what can move away from host ${hostId}`,

  placeInstance: (kind, id) => `Find a host for ${kind} ${id}`,
  placementOf: (kind, id) => `Look where ${kind} ${id} is`,
  placeInstanceElsewhere: (kind, id, hostId) =>
    `Find ${hostId ? `room on host ${hostId}` : 'another host'} for ${kind} ${id}`,
  arriveInstance: (id) => `Record that instance ${id} has moved`,
  stayInstance: (id) => `Record that instance ${id} stays on its host`,
  abandonPlacement: (kind, id) => `Give back the place of ${kind} ${id}`,
  releaseInstance: (kind, id) => `Release the host, room and addresses of ${kind} ${id}`,
  reserveRecordedSize: (kind, id) => `Reserve the recorded size of ${kind} ${id} again`,
  runningInstance: (kind, id) => `Read how ${kind} ${id} runs`,
  giveDiskBack: (kind, id, diskId) => `Detach disk ${diskId} from ${kind} ${id} in the records`,
  diskDetached: (kind, id, diskId) => `Record that disk ${diskId} is detached from ${kind} ${id}`,
  landMachine: (kind, id) => `Record that ${kind} ${id} has moved`,
  takeRoomToRun: (kind, id) => `Reserve the memory of ${kind} ${id}`,
  letSourceGo: (kind, id) => `Release the former place of ${kind} ${id}`,

  diskPlace: (id) => `Look where disk ${id} is`,
  hostsOfDisk: (id) => `List the hosts of disk ${id}`,
  releaseDisk: (id) => `Release the room of disk ${id}`,
  holdRecordedRoom: (id) => `Reserve the recorded size of disk ${id} again`,
  snapshotTaken: (id) => `Record a snapshot of disk ${id}`,
  forgetSnapshot: (id) => `Remove the record of a snapshot of disk ${id}`,
  diskMove: (id) => `Read from where to where disk ${id} moves`,
  diskArrived: (operationId) => `Record that the disks of operation ${operationId} have moved`,
  diskStays: (operationId) => `Record that the disks of operation ${operationId} stay where they are`,

  hostsOfSubnet: (id) => `List the hosts of subnet ${id}`,
  placesOfInstance: (id) => `List the hosts of instance ${id} and its networks`,
  nicsOfInstance: (id) => `List the NICs of instance ${id}`,
  wantNic: (id, wanted) => `Record that NIC ${id} is ${wanted ? 'wanted' : 'not wanted any more'}`,
  releaseNic: (id) => `Release the address of NIC ${id}`,

  placeReplicas: (id) => `Find hosts for load balancer ${id}`,
  withdrawReplicas: (id) => `Withdraw replicas of load balancer ${id}`,
  releaseReplicas: (id) => `Release the replicas of load balancer ${id}`,
  dropReplicas: (id) => `Remove the records of replicas of load balancer ${id}`,
  endpointsOf: (id) => `List the endpoints of load balancer ${id}`,
  replicaRuns: (id, hostId) => `Record that load balancer ${id} runs on host ${hostId}`,
  placeReplicaElsewhere: (id, replicaId) =>
    `Find another host for replica ${replicaId} of load balancer ${id}`,
  stayReplica: (replicaId) => `Record that replica ${replicaId} stays on its host`,
  arriveReplica: (replicaId) => `Record that replica ${replicaId} has moved`,
  hostsOfLoadBalancer: (id) => `List the hosts of load balancer ${id}`,
  releaseLoadBalancer: (id) => `Release the hosts and addresses of load balancer ${id}`,

  orderCertificate: (_operationId, id) => `Order certificate ${id}`,
  proveDomains: (operationId) => `Prove the domains of the order of operation ${operationId}`,
  issueCertificate: (operationId) => `Get the certificate that operation ${operationId} ordered`,
  installCertificate: (operationId) => `Store the certificate that operation ${operationId} ordered`,
  dropOrder: (operationId) => `Drop the order of operation ${operationId}`,
  lookAfterCertificates: () => 'Look after certificates that are due',
}
