import { AsyncLocalStorage } from 'node:async_hooks'
import { type Logger, pino } from 'pino'
import { patientDestination } from './log-destination.ts'

/** Ids on every log line of a request or an activity. */
export interface LogContext {
  request_id?: string
  tenant_id?: string
  operation_id?: string
  workflow_id?: string
}

const context = new AsyncLocalStorage<LogContext>()

/** Runs `work` with `ids` on all its log lines. */
export const withLogContext = <T>(ids: LogContext, work: () => T): T =>
  context.run({ ...context.getStore(), ...ids }, work)

/** Adds ids to the log lines of the current request or activity. */
export function addLogContext(ids: LogContext): void {
  const current = context.getStore()
  if (current) Object.assign(current, ids)
}

// Values with these names are never logged, at any depth of an object.
const secretNames = ['password', 'token', 'secret', 'client_secret', 'authorization', 'cookie', 'config_vars']

/** The JSON-lines logger of one role. */
export const makeLogger = (role: string, level: string): Logger =>
  pino(
    {
      level,
      base: { role, pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: {
        paths: secretNames.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]),
        censor: '[secret]',
      },
      mixin: () => ({ ...context.getStore() }),
    },
    patientDestination({ dest: 1 }),
  )

export type { Logger }
