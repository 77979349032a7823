// All workflows, under their names in Temporal: <verb><Kind>.
export * from './compute/containers.ts'
export * from './compute/hosts.ts'
export * from './compute/microvms.ts'
export * from './compute/vms.ts'
export * from './connectors/connectors.ts'
export { deleteApplication } from './deploy/applications.ts'
export { createArtifact } from './deploy/artifacts.ts'
export { createBuild } from './deploy/builds.ts'
export {
  createBackupExecution,
  deleteBackupExecution,
  verifyBackupExecution,
} from './deploy/backups.ts'
export * from './deploy/databases.ts'
export { createDeployment } from './deploy/deployments.ts'
export * from './deploy/deploy-servers.ts'
export { createDomain, deleteDomain, retryDomain } from './deploy/domains.ts'
export { replaceDeployServer } from './deploy/machine-replacement.ts'
export * from './deploy/services.ts'
export { createTaskRun } from './deploy/task-runs.ts'
export * from './identity/encryption-key.ts'
export * from './identity/tenants.ts'
export * from './storage/disks.ts'
export * from './network/ca-trusts.ts'
export * from './network/certificates.ts'
export * from './network/load-balancers.ts'
export * from './network/subnets.ts'
export * from './network/vpcs.ts'
