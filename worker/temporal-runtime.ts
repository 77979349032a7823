import { DefaultLogger, Runtime } from '@temporalio/worker'
import type { Logger } from '../lib/log.ts'
import { isRecordedFailure } from '../lib/operation-workflows.ts'

/**
 * Sends the SDK's log to the role's log. Leaves shutdown to the role: by default, the runtime would stop the worker at
 * a signal, before the role's other work.
 */
export function installTemporalRuntime(
  log: Logger,
  {
    KEELSON_TEMPORAL_METRICS_ADDRESS: bindAddress,
  }: { KEELSON_TEMPORAL_METRICS_ADDRESS?: string | undefined },
): void {
  const logger = new DefaultLogger('WARN', ({ level, message, meta: { error, ...meta } = {} }) => {
    // Most of these are the tenants' doing, and their operations and runs say more.
    if (error instanceof Error && isRecordedFailure(error.message))
      log.info(meta, `workflow ${error.message}`)
    else log[level === 'ERROR' ? 'error' : 'warn']({ ...meta, ...(error ? { err: error } : {}) }, message)
  })
  // Without `forward`, the native part logs to the console in its own format.
  const logging = { forward: {}, filter: { core: 'WARN', other: 'ERROR' } } as const
  const metrics = bindAddress ? { metrics: { prometheus: { bindAddress } } } : {}
  Runtime.install({ logger, telemetryOptions: { logging, ...metrics }, shutdownSignals: [] })
}
