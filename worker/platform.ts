import { NativeConnection, Worker } from '@temporalio/worker'
import { makeChildActivities } from '../activities/child-operations.ts'
import { makePlatformHostActivities } from '../activities/compute/hosts.ts'
import { makeInstanceDiskActivities } from '../activities/compute/instance-disks.ts'
import { makeInstanceActivities } from '../activities/compute/instances.ts'
import { makeMachineActivities } from '../activities/compute/machines.ts'
import { makeAttachmentActivities } from '../activities/deploy/attachments.ts'
import { makeArtifactActivities } from '../activities/deploy/artifacts.ts'
import { makeBuildActivities } from '../activities/deploy/builds.ts'
import { makeBackupActivities } from '../activities/deploy/backups.ts'
import { makeDatabaseActivities } from '../activities/deploy/databases.ts'
import { makeDeploymentActivities } from '../activities/deploy/deployments.ts'
import { makeDeployServerActivities } from '../activities/deploy/deploy-servers.ts'
import { makeDomainActivities } from '../activities/deploy/domains.ts'
import { makeServiceActivities } from '../activities/deploy/services.ts'
import { makeTaskRunActivities } from '../activities/deploy/task-runs.ts'
import { makeConnectorActivities } from '../activities/connectors/connectors.ts'
import { failures } from '../activities/failures.ts'
import { heartbeats } from '../activities/heartbeats.ts'
import { makeEncryptionKeyActivities } from '../activities/identity/encryption-key.ts'
import { makeTenantActivities } from '../activities/identity/tenants.ts'
import { makeCertificateActivities } from '../activities/network/certificates.ts'
import { makeLoadBalancerActivities } from '../activities/network/load-balancers.ts'
import { makePlatformNetworkActivities } from '../activities/network/networks.ts'
import { measured } from '../activities/measured.ts'
import { makeOperationActivities } from '../activities/operations.ts'
import { makeAiRunActivities, makeAiRunEndActivities } from '../activities/ai/runs.ts'
import { makeAiValueActivities, makeAiWaitActivities } from '../activities/ai/waits.ts'
import { makeAiEvalActivities } from '../activities/ai/evals.ts'
import { openJudge } from '../activities/ai/judge.ts'
import { makeAiDeploymentActivities } from '../activities/ai/deployments.ts'
import { makeRagCollectionActivities } from '../activities/retrieval/collections.ts'
import { makeRagStoreActivities } from '../activities/retrieval/stores.ts'
import { makeDiskActivities } from '../activities/storage/disks.ts'
import { makeToolProbeActivities } from '../activities/tools/tool-probes.ts'
import { readSettings } from '../config.ts'
import { openAuthority } from '../drivers/acme/authority.ts'
import { makeLogger } from '../lib/log.ts'
import { gauge, serveMetrics } from '../lib/metrics.ts'
import { platformQueue } from '../lib/operation-workflows.ts'
import { makeOutbound } from '../lib/outbound.ts'
import { freeStartMemory } from '../lib/start-memory.ts'
import { dataConverter, platformCodec, temporalClient, temporalConnection } from '../lib/temporal.ts'
import { useBlobStores } from '../models/blobs.ts'
import { useProviders } from '../models/connectors/providers.ts'
import { connectDatabase, disconnectDatabase } from '../models/database.ts'
import { tellHostsOfLoadBalancers } from '../models/network/tell-hosts.ts'
import { countWaiting } from '../models/operation-dispatch.ts'
import { useLines } from '../models/operation-lines.ts'
import { useOutbound } from '../models/outbound.ts'
import { openEmbeddings } from '../models/retrieval/embeddings.ts'
import { startDispatcher } from './dispatcher.ts'
import { makeDocumentsWorker } from './documents.ts'
import { startEventSender } from './event-sender.ts'
import { watchHosts } from './reachability.ts'
import { startLogKeeper } from './log-keeper.ts'
import { startRecordKeeper } from './record-keeper.ts'
import { startMailer } from './mailer.ts'
import { keepSchedules } from './schedules.ts'
import { startTargetKeeper } from './target-keeper.ts'
import { startTaskClock } from './task-clock.ts'
import { installTemporalRuntime } from './temporal-runtime.ts'

// The platform worker: workflow code, platform activities and the dispatcher.

const settings = readSettings('worker')
const log = makeLogger('worker', settings.KEELSON_LOG_LEVEL)
installTemporalRuntime(log, settings)

await connectDatabase(settings)
await useBlobStores(settings)
const outbound = makeOutbound({ allowed: settings.KEELSON_OUTBOUND_ALLOWED })
useOutbound(outbound)
useProviders(settings)
const connection = await NativeConnection.connect(temporalConnection(settings))
const client = temporalClient(settings)
const authority = openAuthority({
  directory: settings.KEELSON_ACME_DIRECTORY,
  contact: settings.KEELSON_ACME_CONTACT ?? null,
  caFile: settings.KEELSON_ACME_CA ?? null,
})
const worker = await Worker.create({
  connection,
  namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
  taskQueue: platformQueue,
  workflowBundle: { codePath: settings.KEELSON_WORKFLOW_BUNDLE },
  activities: {
    ...makeOperationActivities({ client }),
    ...makeChildActivities({ client }),
    ...makeInstanceActivities(),
    ...makeMachineActivities(),
    ...makeInstanceDiskActivities(),
    ...makeDiskActivities(),
    ...makePlatformHostActivities(),
    ...makePlatformNetworkActivities(),
    ...makeLoadBalancerActivities(),
    ...makeCertificateActivities({ authority }),
    ...makeDeploymentActivities({ domain: settings.KEELSON_APPS_DOMAIN }),
    ...makeBackupActivities(),
    ...makeDatabaseActivities(),
    ...makeAttachmentActivities(),
    ...makeServiceActivities({ domain: settings.KEELSON_APPS_DOMAIN }),
    ...makeArtifactActivities(),
    ...makeDomainActivities(),
    ...makeBuildActivities(),
    ...makeTaskRunActivities(),
    ...makeDeployServerActivities({ machineImage: settings.KEELSON_MACHINE_IMAGE }),
    ...makeConnectorActivities(),
    ...makeToolProbeActivities({ image: settings.KEELSON_TOOLS_IMAGE }),
    ...makeRagStoreActivities({
      images: { sqlite: settings.KEELSON_RAG_IMAGE, pgvector: settings.KEELSON_RAG_PGVECTOR_IMAGE },
    }),
    ...makeAiDeploymentActivities({ image: settings.KEELSON_RUNNER_IMAGE }),
    ...makeAiRunActivities({ client, log }),
    ...makeAiRunEndActivities({ client }),
    ...makeAiWaitActivities({ client }),
    ...makeAiValueActivities(),
    ...makeAiEvalActivities({ client, askJudge: openJudge(settings.KEELSON_MODELS_URL) }),
    ...makeRagCollectionActivities({ client }),
    ...makeTenantActivities(),
    ...makeEncryptionKeyActivities(),
  },
  dataConverter: dataConverter(platformCodec(settings)),
  interceptors: { activity: [measured, heartbeats, failures] },
  // Each cached workflow uses memory; an evicted one is replayed from its short history.
  maxCachedWorkflows: 500,
  // When a worker is killed, its workflows wait this long before another worker takes them.
  stickyQueueScheduleToStartTimeout: '2 s',
  // Running workflow tasks take milliseconds and end within this time; the rest is retried by other workers.
  shutdownGraceTime: '5 s',
})
const embeddings = openEmbeddings(settings.KEELSON_MODELS_URL)
const documents = await makeDocumentsWorker(connection, embeddings, settings, log)
tellHostsOfLoadBalancers(log)
useLines(settings.KEELSON_OPERATIONS_AT_ONCE)
const dispatcher = startDispatcher(client, log)
const mailer = startMailer(settings, log)
const tasks = startTaskClock(log)
const events = startEventSender(outbound, log)
const hosts = watchHosts(log)
const schedules = keepSchedules(client, settings, log)
const logs = startLogKeeper(settings, log)
const targets = startTargetKeeper(log)
const oldRecords = startRecordKeeper(settings, log)
gauge(
  'keelson_operations_waiting',
  'Operations that are accepted and not handed to Temporal yet',
  countWaiting,
)
const scraped = await serveMetrics('worker', settings, log)
log.info('ready')
freeStartMemory()

const workers = [worker, documents]
for (const signal of ['SIGTERM', 'SIGINT'] as const)
  process.once(signal, () => workers.forEach((one) => one.shutdown()))
await Promise.all(workers.map((one) => one.run()))
await embeddings.close()
await scraped.close()
await dispatcher.stop()
await mailer.stop()
await tasks.stop()
// Together: the end of the events closes the way outside, also for an answer that the other one waits for.
await Promise.all([targets.stop(), events.stop()])
await hosts.stop()
await schedules.stop()
await oldRecords.stop()
await logs.stop()
await client.connection.close()
await connection.close()
await disconnectDatabase()
