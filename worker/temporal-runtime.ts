import { DefaultLogger, Runtime } from '@temporalio/worker'
import type { Logger } from '../lib/log.ts'

/**
 * Temporal's own words go into the role's log, and the role itself says when its worker stops: by default
 * the runtime would end it at a signal, before what else the role does.
 */
export function installTemporalRuntime(log: Logger): void {
  const logger = new DefaultLogger('WARN', ({ level, message, meta }) =>
    log[level === 'ERROR' ? 'error' : 'warn']({ ...meta }, message),
  )
  Runtime.install({ logger, shutdownSignals: [] })
}
