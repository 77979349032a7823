import type { ArtifactActivities } from '../../activities/deploy/artifacts.ts'
import type { AttachmentActivities } from '../../activities/deploy/attachments.ts'
import type { BackupActivities } from '../../activities/deploy/backups.ts'
import type { BuildActivities } from '../../activities/deploy/builds.ts'
import type { DatabaseActivities } from '../../activities/deploy/databases.ts'
import type { DeployServerActivities } from '../../activities/deploy/deploy-servers.ts'
import type { DeploymentActivities } from '../../activities/deploy/deployments.ts'
import type { DomainActivities } from '../../activities/deploy/domains.ts'
import type { ServiceActivities } from '../../activities/deploy/services.ts'
import type { TaskRunActivities } from '../../activities/deploy/task-runs.ts'
import type { Words } from './words.ts'

export const deployWords: Words<
  DeployServerActivities &
    DeploymentActivities &
    ServiceActivities &
    DatabaseActivities &
    AttachmentActivities &
    BackupActivities &
    ArtifactActivities &
    BuildActivities &
    DomainActivities &
    TaskRunActivities
> = {
  makeDeployNetwork: (id) => `Make the network of deploy server ${id}`,
  removeDeployNetwork: (id) => `Remove the network of deploy server ${id}`,
  noteLoadBalancer: (id) => `Record the load balancer of deploy server ${id}`,
  noteInitStep: (id, step) => `Record how far deploy server ${id} is: ${step}`,
  planDeployServer: (id) => `Plan the machines of deploy server ${id}`,
  planNode: (id, name) => `Plan the machine ${name} of deploy server ${id}`,
  noteNode: (id, name) => `Record the machine ${name} of deploy server ${id}`,
  closeWorker: (id, name) => `Have nothing more placed on the machine ${name} of deploy server ${id}`,
  noteReplaced: (id, name) => `Record that the machine ${name} of deploy server ${id} is replaced`,
  emptyNode: (id, name) => `Record that nothing is on the machine ${name} of deploy server ${id}`,
  dropNode: (id, name) => `Remove the record of the machine ${name} of deploy server ${id}`,
  placesOfNodes: (id) => `Look where the machines of deploy server ${id} are`,
  workersThatAnswer: (id) => `List the workers of deploy server ${id} that answer`,
  nodeAt: (id, name) => `Read the record of the machine ${name} of deploy server ${id}`,
  partsOfDeployServer: (id) => `List the parts of deploy server ${id}`,

  takeTurn: (id) => `Ask whether it is the turn of deployment ${id}`,
  endTurn: (id) => `End the turn of deployment ${id}`,
  beginPhase: (id, phase) => `Begin the phase ${phase} of deployment ${id}`,
  deploymentFacts: (id) => `Read deployment ${id}`,
  managerOf: (serverId) => `Look where the control plane of deploy server ${serverId} is`,
  noteUnreached: (lbId) => `Record targets that load balancer ${lbId} does not reach`,
  placeRelease: (id) => `Place the replicas of deployment ${id}`,
  routeTo: (appId) => `Route application ${appId} to its deployments`,
  weighTargets: (serverId) => `Weigh the targets of deploy server ${serverId}`,
  settleRelease: (appId) => `Record which deployment of application ${appId} serves`,
  wantOnly: (appId) => `Record which deployments of application ${appId} are to run`,
  takeReleaseBack: (id) => `Take deployment ${id} back`,
  keepOutput: (id) => `Keep the last output of deployment ${id}`,
  volumesOf: (appId) => `List the volumes of application ${appId}`,
  noteVolumesGone: (appId) => `Record that the volumes of application ${appId} are gone`,
  applicationsOn: (serverId, node) =>
    `List the applications on the machine ${node} of deploy server ${serverId}`,
  servingOn: (serverId, node) => `List what serves on the machine ${node} of deploy server ${serverId}`,
  openDeployments: (of) =>
    `List the open deployments of ${'app_id' in of ? `application ${of.app_id}` : `deploy server ${of.deploy_server_id}`}`,
  forgetDeployments: (appId) => `Remove the records of the deployments of application ${appId}`,
  forgetApplications: (serverId) => `Remove the records of the applications of deploy server ${serverId}`,

  rememberService: (id) => `Keep the former state of service ${id}`,
  advanceService: (id) => `Record which containers of service ${id} are to run`,
  settleService: (id) => `Record that service ${id} runs`,
  takeServiceBack: (id) => `Take the change of service ${id} back`,
  forgetFormer: (id) => `Forget the former state of service ${id}`,
  haltService: (id) => `Record that service ${id} is to stop`,
  routeService: (id) => `Route the ports and domains of service ${id}`,
  volumesOfService: (id) => `List the volumes of service ${id}`,
  forgetService: (id) => `Remove the records of service ${id}`,

  databaseFacts: (id) => `Read database ${id}`,
  formerStart: (id) => `Read how database ${id} ran`,
  settleStart: (id) => `Record that database ${id} is to run`,
  settleStop: (id) => `Record that database ${id} is to stop`,
  takeStartBack: (id) => `Take the start of database ${id} back`,
  noteAnswered: (id) => `Record that database ${id} answers`,
  noteFailedStart: (id) => `Record the output of database ${id}, which did not start`,
  certificateOfDatabase: (id) => `Look for the certificate of database ${id}`,
  volumesOfDatabase: (id) => `List the volumes of database ${id}`,
  databaseHasData: (id) => `Look whether database ${id} has data`,
  noteVolumesDestroyed: (id) => `Record that the volumes of database ${id} are destroyed`,
  keepDatabaseVolumes: (id) => `Keep the volumes of database ${id}`,
  forgetDatabaseStorages: (id) => `Remove the records of the volumes of database ${id}`,
  beginRefill: (id, executionId) => `Prepare to fill database ${id} from backup ${executionId}`,
  beginReturn: (id, { volume_id }) => `Prepare database ${id} to go back to volume ${volume_id}`,
  settleIsolated: (id) => `Record that database ${id} is to run isolated`,
  keepRefill: (id) => `Record that the new volume of database ${id} stays`,
  endRefill: (id) => `End the refill of database ${id}`,
  switchVolumes: (id) => `Switch database ${id} to its new volume`,
  takeVolumesBack: (id) => `Switch database ${id} back to its former volume`,
  attachmentFacts: (id) => `Read attachment ${id}`,
  attachmentMade: (id) => `Record that attachment ${id} is made`,
  beginDetaching: (id) => `Record that attachment ${id} ends`,
  forgetAttachment: (id) => `Remove the record of attachment ${id}`,
  attachmentsOfDatabase: (databaseId) => `List the attachments of database ${databaseId}`,
  dropCopy: (id) => `Drop the copy of backup ${id}`,
  placeScratch: (id) => `Find room for the trial database of ${id}`,
  releaseScratch: (id) => `Release the room of the trial database of ${id}`,
  noteVerified: (id) => `Record what the trial of backup ${id} found`,
  removeOldBackupsOf: (id) => `Remove old backups beside backup ${id}`,

  beginPush: (id) => `Begin the push of artifact ${id}`,
  endPush: (id) => `Record that artifact ${id} is pushed`,
  dropArchive: (id) => `Drop the archive of artifact ${id}`,
  uploadOf: (id) => `Look at the upload of artifact ${id}`,
  uploadPlace: (id) => `Look where the upload of artifact ${id} is`,
  noteDigest: (id) => `Record the digest of artifact ${id}`,
  endBuild: (id) => `Record how build ${id} ended`,
  placesToCopyTo: (serverId) => `List the registries of deploy server ${serverId} that lack images`,
  noteImagesOn: (_serverId, { machine_id }) => `Record which images machine ${machine_id} has`,
  registryPlace: (serverId) => `Look where the registry of deploy server ${serverId} is`,
  copyPlace: (serverId) => `Look where the second registry of deploy server ${serverId} is`,
  workerPlaces: (serverId) => `Look where the workers of deploy server ${serverId} are`,
  noteImagesGone: (serverId) => `Record which images of deploy server ${serverId} are removed`,

  domainFacts: (id) => `Read domain ${id}`,
  unrouteDomain: (id) => `Remove the route of domain ${id}`,
  noteSecured: (id) => `Record that domain ${id} has a certificate`,
  noteCertificate: (id) => `Record the certificate of domain ${id}`,
  wantedListeners: (serverId) => `Read the wanted listeners of deploy server ${serverId}`,
  domainsOfApplication: (appId) => `List the domains of application ${appId}`,
  certificatesOfDomains: (serverId) => `List the certificates of the domains of deploy server ${serverId}`,

  endTaskRun: (id) => `Record how task run ${id} ended`,
}
