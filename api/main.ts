import { createServer } from 'node:http'
import cors from 'cors'
import express from 'express'
import helmet from 'helmet'
import { readSettings } from '../config.ts'
import { makeLogger } from '../lib/log.ts'
import { dataConverter, temporalClient } from '../lib/temporal.ts'
import { connectDatabase, disconnectDatabase } from '../models/database.ts'
import { useLinks } from '../models/identity/links.ts'
import { onAccepted } from '../models/operations.ts'
import { watchOperations } from '../models/operation-watch.ts'
import { cancelOperation } from '../workflows/starters.ts'
import { serveCodec } from './codec.ts'
import { serveDocs } from './docs.ts'
import { allOperations } from './index.ts'
import { openApiDocument } from './openapi.ts'
import { serve } from './router.ts'
import { makeStarter } from './start.ts'

// The api role: stateless; as many of them as there is load.

const settings = readSettings('api')
const log = makeLogger('api', settings.KEELSON_LOG_LEVEL)
const stopping = new AbortController()

await connectDatabase(settings)
useLinks(settings)
const temporal = temporalClient(settings)

onAccepted(makeStarter(temporal, log))

const operations = allOperations({
  apiUrl: settings.KEELSON_API_URL,
  cancel: (workflowId) => {
    cancelOperation(temporal, workflowId).catch((error: unknown) =>
      log.warn({ err: error, workflow_id: workflowId }, 'cancel not passed on; the dispatcher will'),
    )
  },
  workflowUrl: (workflowId) =>
    `${settings.KEELSON_TEMPORAL_UI_URL}/namespaces/${settings.KEELSON_TEMPORAL_NAMESPACE}/workflows/${workflowId}`,
})

const app = express()
app.set('trust proxy', settings.KEELSON_TRUSTED_PROXIES)
app.use(helmet())
if (settings.KEELSON_CORS_ORIGINS.length) {
  app.use(
    '/api/v1',
    cors({
      origin: settings.KEELSON_CORS_ORIGINS,
      exposedHeaders:
        'Operation-Location,Location,Retry-After,RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset,X-Request-Id',
      maxAge: 600,
    }),
  )
}
app.get('/healthz', (_request, response) => void response.json({ ok: true }))
serveDocs(app, openApiDocument(operations, settings.KEELSON_API_URL))
const [codec] = dataConverter(settings).payloadCodecs ?? []
if (codec) serveCodec(app, codec, settings.KEELSON_TEMPORAL_UI_URL)
serve(app, operations, settings, log)

const watching = watchOperations(log, stopping.signal)
// Against requests that come in slowly; how long an answer takes is not limited.
const server = createServer({ headersTimeout: 20_000, requestTimeout: 120_000 }, app)
server.listen(settings.KEELSON_API_PORT, settings.KEELSON_API_HOST, () =>
  log.info({ url: settings.KEELSON_API_URL }, 'ready'),
)

async function stop(): Promise<void> {
  log.info('stopping')
  server.close()
  server.closeIdleConnections()
  // Requests under way get a moment; those that only wait or follow are cut.
  await new Promise((resolve) => setTimeout(resolve, 500))
  stopping.abort()
  server.closeAllConnections()
  await watching
  await temporal.connection.close()
  await disconnectDatabase()
}
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => void stop())
