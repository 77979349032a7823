import { readFileSync } from 'node:fs'
import { readSettings } from '../../config.ts'
import { makeLogger } from '../../lib/log.ts'
import { gauge, serveMetrics } from '../../lib/metrics.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { makePrices, OwnPrices } from '../../models/llm/prices.ts'
import { keepStoreRoom } from '../../models/store-room.ts'
import { openModelGateway } from './server.ts'

// The gateway role for models: what sandboxes reach instead of providers. Stateless, any number of replicas. It is a
// process of its own, apart from the gateway for hosts: it opens connectors' secrets with the master key, and has neither
// the codec key nor a way to Temporal.

const settings = readSettings('model-gateway')
const log = makeLogger('model-gateway', settings.KEELSON_LOG_LEVEL)

const { KEELSON_MODELS_PRICES_FILE: pricesFile } = settings
const own = pricesFile ? OwnPrices.parse(JSON.parse(readFileSync(pricesFile, 'utf8'))) : null

await connectDatabase(settings)
keepStoreRoom(settings, log)
const gateway = await openModelGateway(settings, makePrices(own), log)
gauge('keelson_model_calls_open', 'Calls of models that are under way', () => gateway.open())
const scraped = await serveMetrics('model-gateway', settings, log)
log.info({ port: gateway.port }, 'ready')

async function stop(): Promise<void> {
  log.info('stopping')
  await gateway.close()
  await scraped.close()
  await disconnectDatabase()
}
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => void stop())
