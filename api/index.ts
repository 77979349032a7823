import '../models/index.ts' // the rules by which operations are accepted
import { aiWorkflows } from './ai/ai-workflows.ts'
import { aiCanaries } from './ai/canaries.ts'
import { aiDeployments } from './ai/deployments.ts'
import { aiEvals } from './ai/evals.ts'
import { aiRunMetrics } from './ai/run-metrics.ts'
import { aiEvalRuns } from './ai/eval-runs.ts'
import { aiRunRetries } from './ai/run-retries.ts'
import { aiRunSchedules } from './ai/run-schedules.ts'
import { aiRunStreams } from './ai/run-streams.ts'
import { makeAiRuns } from './ai/runs.ts'
import { runnerCalls } from './ai/runner-calls.ts'
import { makeDecisions } from './ai/decisions.ts'
import { makeRunnerMaps } from './ai/runner-maps.ts'
import { makeRunnerProtocol } from './ai/runner-protocol.ts'
import { aiWorkflowVersions } from './ai/versions.ts'
import { aiWebhooks } from './ai/webhooks.ts'
import { containers } from './compute/containers.ts'
import { makeHostProtocol } from './compute/host-protocol.ts'
import { hosts } from './compute/hosts.ts'
import { machineProtocol } from './compute/machine-protocol.ts'
import { registryCredentials } from './compute/registry-credentials.ts'
import { connectors } from './connectors/connectors.ts'
import { connectorLogins } from './connectors/logins.ts'
import { makeArtifacts } from './deploy/artifacts.ts'
import { applicationLogs } from './deploy/application-logs.ts'
import { applicationObservation } from './deploy/application-observation.ts'
import { makeApplications } from './deploy/applications.ts'
import { makeDeployCredentials } from './deploy/credentials.ts'
import { databaseObservation } from './deploy/database-observation.ts'
import { makeDatabases } from './deploy/databases.ts'
import { deploymentLogs } from './deploy/deployment-logs.ts'
import { makeBuilds } from './deploy/builds.ts'
import { makeBuildProtocol } from './deploy/build-protocol.ts'
import { makeDeployments } from './deploy/deployments.ts'
import { deployProtocol } from './deploy/deploy-protocol.ts'
import { makeDeployServers } from './deploy/deploy-servers.ts'
import { domains } from './deploy/domains.ts'
import { eventDeliveries } from './deploy/event-deliveries.ts'
import { makeEventSubscriptions } from './deploy/event-subscriptions.ts'
import { backupExecutions } from './deploy/backup-executions.ts'
import { archiveProtocol } from './deploy/archive-protocol.ts'
import { backupProtocol } from './deploy/backup-protocol.ts'
import { swarmCopiesProtocol } from './deploy/swarm-copies-protocol.ts'
import { backupTargets } from './deploy/backup-targets.ts'
import { backups } from './deploy/backups.ts'
import { keptVolumes } from './deploy/kept-volumes.ts'
import { scheduledTasks } from './deploy/scheduled-tasks.ts'
import { serviceLogs } from './deploy/service-logs.ts'
import { makeServices } from './deploy/services.ts'
import { serviceTemplateOperations } from './deploy/service-templates.ts'
import { storages } from './deploy/storages.ts'
import { microvms } from './compute/microvms.ts'
import { vms } from './compute/vms.ts'
import { account } from './identity/account.ts'
import { roles } from './identity/roles.ts'
import { auditEvents } from './identity/audit.ts'
import { sessions } from './identity/sessions.ts'
import { makeApiClients } from './identity/api-clients.ts'
import { encryptionKey } from './identity/encryption-key.ts'
import { makeOauth } from './identity/oauth.ts'
import { users } from './identity/users.ts'
import { limits } from './identity/limits.ts'
import { tenants } from './identity/tenants.ts'
import { llmUsage } from './llm/usage.ts'
import { caTrusts } from './network/ca-trusts.ts'
import { certificates } from './network/certificates.ts'
import { loadBalancerLogs } from './network/load-balancer-logs.ts'
import { loadBalancerMetrics } from './network/load-balancer-metrics.ts'
import { loadBalancerPrometheus } from './network/load-balancer-prometheus.ts'
import { loadBalancerRoutes } from './network/load-balancer-routes.ts'
import { loadBalancers } from './network/load-balancers.ts'
import { loadBalancerProtocol } from './network/load-balancer-protocol.ts'
import { subnets } from './network/subnets.ts'
import { vpcs } from './network/vpcs.ts'
import { mailSuppressions } from './mail/suppressions.ts'
import { makeMailWebhook } from './mail/webhook.ts'
import { makeRagCollections } from './retrieval/collections.ts'
import { makeRagDocuments } from './retrieval/documents.ts'
import { makeRagSearch } from './retrieval/search.ts'
import { ragStores } from './retrieval/stores.ts'
import { diskProtocol } from './storage/disk-protocol.ts'
import { disks } from './storage/disks.ts'
import { snapshots } from './storage/snapshots.ts'
import { toolProbeProtocol } from './tools/probe-protocol.ts'
import { toolProbes } from './tools/probes.ts'
import { tools } from './tools/tools.ts'
import type { Operation } from './operation.ts'
import { makeOperations, type OperationsContext } from './operations.ts'

/** All HTTP operations: routes, the OpenAPI document, permissions and tests derive from this list. */
export const allOperations = (context: OperationsContext): Operation[] => [
  ...sessions,
  ...account,
  ...users,
  ...makeApiClients(context),
  ...makeOauth(context),
  ...encryptionKey,
  ...roles,
  ...auditEvents,
  ...containers,
  ...microvms,
  ...vms,
  ...registryCredentials,
  ...disks,
  ...snapshots,
  ...makeOperations(context),
  ...vpcs,
  ...subnets,
  ...loadBalancers,
  ...loadBalancerRoutes,
  ...loadBalancerLogs,
  ...loadBalancerMetrics,
  ...loadBalancerPrometheus,
  ...certificates,
  ...caTrusts,
  ...makeDeployServers(context),
  ...makeDeployCredentials(context),
  ...makeApplications(context),
  ...applicationLogs,
  ...applicationObservation,
  ...scheduledTasks,
  ...storages,
  ...makeDatabases(context),
  ...databaseObservation,
  ...keptVolumes,
  ...backups,
  ...backupExecutions,
  ...backupTargets,
  ...makeServices(context),
  ...serviceLogs,
  ...serviceTemplateOperations,
  ...domains,
  ...makeArtifacts(context),
  ...makeBuilds(context),
  ...makeDeployments(context),
  ...makeEventSubscriptions(context),
  ...eventDeliveries,
  ...deploymentLogs,
  ...connectors,
  ...connectorLogins,
  ...ragStores,
  ...makeRagCollections(context),
  ...makeRagDocuments(context),
  ...makeRagSearch(context),
  ...tools,
  ...toolProbes,
  ...aiWorkflows,
  ...aiWorkflowVersions,
  ...aiDeployments,
  ...aiCanaries,
  ...aiEvals,
  ...aiEvalRuns,
  ...aiWebhooks,
  ...makeAiRuns(context),
  ...makeDecisions(context),
  ...aiRunMetrics,
  ...aiRunRetries,
  ...aiRunStreams,
  ...aiRunSchedules,
  ...hosts,
  ...limits,
  ...llmUsage,
  ...tenants,
  ...makeMailWebhook(context),
  ...mailSuppressions,
  ...makeHostProtocol(context),
  ...makeRunnerProtocol(context),
  ...runnerCalls,
  ...makeRunnerMaps(),
  ...loadBalancerProtocol,
  ...diskProtocol,
  ...deployProtocol,
  ...backupProtocol,
  ...swarmCopiesProtocol,
  ...archiveProtocol,
  ...toolProbeProtocol,
  ...makeBuildProtocol(context),
  ...machineProtocol,
]
