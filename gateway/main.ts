import { readSettings } from '../config.ts'
import { makeLogger } from '../lib/log.ts'
import { serveMetrics } from '../lib/metrics.ts'
import { connectWithoutKeys, disconnectDatabase } from '../models/database.ts'
import { openGateway } from './gateway.ts'

// The gateway role: what parties reach instead of Temporal. Stateless, any number of replicas. It reads their public keys
// from MongoDB, and has the codec key; it has no master key.

const settings = readSettings('gateway')
const log = makeLogger('gateway', settings.KEELSON_LOG_LEVEL)

await connectWithoutKeys(settings.KEELSON_MONGODB_URL)
const gateway = await openGateway(settings, log)
const scraped = await serveMetrics('gateway', settings, log)
log.info({ port: gateway.port }, 'ready')

async function stop(): Promise<void> {
  log.info('stopping')
  await gateway.close()
  await scraped.close()
  await disconnectDatabase()
}
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => void stop())
