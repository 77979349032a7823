import cors from 'cors'
import express from 'express'
import helmet from 'helmet'
import { readSettings } from '../config.ts'
import { makeLogger } from '../lib/log.ts'
import { serveMetrics } from '../lib/metrics.ts'
import { makeImagePolicy } from '../lib/image-policy.ts'
import { makeOutbound } from '../lib/outbound.ts'
import { partyRing } from '../lib/payload-codec.ts'
import { formatKeyRing, readKeyRing } from '../lib/seal.ts'
import { freeStartMemory } from '../lib/start-memory.ts'
import { platformCodec, temporalClient } from '../lib/temporal.ts'
import { makeWebSockets } from '../lib/websockets.ts'
import { markDecisionTold } from '../models/ai/decisions.ts'
import { onRunAccepted } from '../models/ai/runs.ts'
import { useBlobStores } from '../models/blobs.ts'
import { watchChanges } from '../models/changes.ts'
import { useProviders } from '../models/connectors/providers.ts'
import { connectDatabase, disconnectDatabase } from '../models/database.ts'
import { databaseTypes, imageSettingOf } from '../models/deploy/engines/index.ts'
import { useImagePolicy } from '../models/compute/images.ts'
import { useLinks } from '../models/identity/links.ts'
import { tellHostsOfLoadBalancers } from '../models/network/tell-hosts.ts'
import { onStartable, useLines } from '../models/operation-lines.ts'
import { keepStoreRoom, showStoreRoom } from '../models/store-room.ts'
import { useOutbound } from '../models/outbound.ts'
import { openEmbeddings } from '../models/retrieval/embeddings.ts'
import { cancelOperation, tellOfDecision, tellOfUpload } from '../workflows/starters.ts'
import { bearerProtocol } from './authenticate.ts'
import { serveCodec } from './codec.ts'
import { serveConnectorCallback } from './connectors/callback.ts'
import { serveMailedPages } from './identity/mailed-pages.ts'
import { serveDashboard } from './deploy/dashboard.ts'
import { serveRegistries } from './deploy/registry.ts'
import { artifactUpload } from './deploy/uploads.ts'
import { serveDocs } from './docs.ts'
import { allOperations } from './index.ts'
import { makeMailTopic } from './mail/topic.ts'
import { openApiDocument } from './openapi.ts'
import { documentUpload } from './retrieval/uploads.ts'
import { serve } from './router.ts'
import { limitBodies } from './slow-bodies.ts'
import { makeServer } from './server.ts'
import { socketPaths } from './sockets.ts'
import { makeRunStarter, makeStarter } from './start.ts'
import { serveUploads } from './uploads.ts'

// The api role: stateless, any number of replicas.

const settings = readSettings('api')
const log = makeLogger('api', settings.KEELSON_LOG_LEVEL)
const stopping = new AbortController()

await connectDatabase(settings)
await useBlobStores(settings)
keepStoreRoom(settings, log)
showStoreRoom()
useLinks(settings)
useImagePolicy(
  makeImagePolicy({
    allowed: settings.KEELSON_IMAGES_ALLOWED,
    denied: settings.KEELSON_IMAGES_DENIED,
    private: settings.KEELSON_IMAGES_PRIVATE,
  }),
)
const temporal = temporalClient(settings)

useLines(settings.KEELSON_OPERATIONS_AT_ONCE)
onStartable(makeStarter(temporal, log))
onRunAccepted(makeRunStarter(temporal, log))
tellHostsOfLoadBalancers(log)

const outbound = makeOutbound({ allowed: settings.KEELSON_OUTBOUND_ALLOWED })
useOutbound(outbound)
useProviders(settings)
const embeddings = openEmbeddings(settings.KEELSON_MODELS_URL)
const codecRing = readKeyRing(settings.KEELSON_CODEC_KEY_FILE)
const operations = allOperations({
  codecKeysOf: (party) => formatKeyRing(partyRing(codecRing, party)),
  apiUrl: settings.KEELSON_API_URL,
  appsDomain: settings.KEELSON_APPS_DOMAIN,
  machineKinds: settings.KEELSON_MACHINE_KINDS,
  outbound,
  buildImages: {
    registry: settings.KEELSON_REGISTRY_IMAGE,
    base: {
      node: settings.KEELSON_BUILD_NODE_IMAGE,
      python: settings.KEELSON_BUILD_PYTHON_IMAGE,
      go: settings.KEELSON_BUILD_GO_IMAGE,
      run: settings.KEELSON_BUILD_RUN_IMAGE,
      composer: settings.KEELSON_BUILD_COMPOSER_IMAGE,
      php: settings.KEELSON_BUILD_PHP_IMAGE,
      static: settings.KEELSON_BUILD_STATIC_IMAGE,
    },
    nixpacks: settings.KEELSON_NIXPACKS_IMAGE
      ? {
          image: settings.KEELSON_NIXPACKS_IMAGE,
          base_image: settings.KEELSON_NIXPACKS_BASE_IMAGE ?? null,
        }
      : null,
  },
  databaseImages: Object.fromEntries(databaseTypes.map((type) => [type, settings[imageSettingOf(type)]])),
  embeddings,
  mailTopic: makeMailTopic(settings, log),
  cancel: (workflowId) => {
    cancelOperation(temporal, workflowId).catch((error: unknown) =>
      log.warn(
        { err: error, workflow_id: workflowId },
        'a cancel was not passed on; the dispatcher will pass it on',
      ),
    )
  },
  tellOfDecision: (runId, node) => {
    tellOfDecision(temporal, runId)
      .then(() => markDecisionTold(runId, node))
      .catch((error: unknown) =>
        log.warn(
          { err: error, run_id: runId, node },
          'a decision was not passed on; the dispatcher will pass it on',
        ),
      )
  },
  workflowUrl: (workflowId) =>
    `${settings.KEELSON_TEMPORAL_UI_URL}/namespaces/${settings.KEELSON_TEMPORAL_NAMESPACE}/workflows/${workflowId}`,
})

const app = express()
app.set('trust proxy', settings.KEELSON_TRUSTED_PROXIES)
// Without `upgrade-insecure-requests`: over plain HTTP by another name than localhost, pages would lose their own files.
app.use(helmet({ contentSecurityPolicy: { directives: { upgradeInsecureRequests: null } } }))
if (settings.KEELSON_CORS_ORIGINS.length) {
  app.use(
    '/api/v1',
    cors({
      origin: settings.KEELSON_CORS_ORIGINS,
      exposedHeaders:
        'ETag,Operation-Location,Location,Retry-After,RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset,Upload-Length,Upload-Offset,X-Request-Id',
      maxAge: 600,
      preflightContinue: true, // the router says which methods there are
    }),
  )
}
app.get('/healthz', (_request, response) => void response.json({ ok: true }))
serveDocs(app, openApiDocument(operations, settings.KEELSON_API_URL))
serveDashboard(app)
serveConnectorCallback(app)
serveMailedPages(app)
serveRegistries(app, { ratePerSec: settings.KEELSON_RATE_PER_SEC }, log)
serveUploads(app, {
  kinds: [artifactUpload, documentUpload],
  ratePerSec: settings.KEELSON_RATE_PER_SEC,
  tell: (workflowId) => tellOfUpload(temporal, workflowId),
  log,
})
serveCodec(app, platformCodec(settings), settings.KEELSON_TEMPORAL_UI_URL)
const sockets = makeWebSockets(socketPaths(operations), bearerProtocol)
serve(app, operations, settings, sockets, log)

const scraped = await serveMetrics('api', settings, log)
const watching = watchChanges(log, stopping.signal)
freeStartMemory()
const server = makeServer(limitBodies(app), settings, sockets, log)
server.listen(settings.KEELSON_API_PORT, settings.KEELSON_API_HOST, () =>
  log.info({ url: settings.KEELSON_API_URL }, 'ready'),
)

async function stop(): Promise<void> {
  log.info('stopping')
  server.close()
  server.closeIdleConnections()
  sockets.close('the platform is stopping')
  // Give running requests 500 ms; then cut those that still wait or stream.
  await new Promise((resolve) => setTimeout(resolve, 500))
  stopping.abort()
  sockets.terminate()
  server.closeAllConnections()
  await watching
  await scraped.close()
  await embeddings.close()
  await temporal.connection.close()
  await disconnectDatabase()
}
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => void stop())
