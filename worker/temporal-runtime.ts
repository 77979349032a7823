import { DefaultLogger, Runtime } from '@temporalio/worker'
import type { Logger } from '../lib/log.ts'

/**
 * Temporal's own words go into the role's log, and the role itself says when its worker stops: by default
 * the runtime would end it at a signal, before what else the role does.
 */
export function installTemporalRuntime(
  log: Logger,
  {
    KEELSON_TEMPORAL_METRICS_ADDRESS: bindAddress,
  }: { KEELSON_TEMPORAL_METRICS_ADDRESS?: string | undefined },
): void {
  const logger = new DefaultLogger('WARN', ({ level, message, meta: { error, ...meta } = {} }) =>
    log[level === 'ERROR' ? 'error' : 'warn']({ ...meta, ...(error ? { err: error } : {}) }, message),
  )
  // `forward`: else what its native half says goes to the console, in a form of its own.
  const logging = { forward: {}, filter: { core: 'WARN', other: 'ERROR' } } as const
  const metrics = bindAddress ? { metrics: { prometheus: { bindAddress } } } : {}
  Runtime.install({ logger, telemetryOptions: { logging, ...metrics }, shutdownSignals: [] })
}
