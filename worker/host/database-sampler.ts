import { setTimeout as delay } from 'node:timers/promises'
import type { TaskCommands } from '../../drivers/swarms.ts'
import {
  type DatabaseMetric,
  databaseMetrics,
  type DatabaseMetricsOnHost,
  type DatabaseSample,
  type ReplicaReport,
} from '../../lib/deploy-protocol.ts'
import { sampleEveryMs, samplesPerMessage } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { mapAtOnce } from '../../lib/queue.ts'

interface Parts {
  commands: Pick<TaskCommands, 'run'>
  /** The machines that run on this host. */
  machines: () => string[]
  /** Fetches from the platform which databases are to be asked. */
  wanted: () => Promise<DatabaseMetricsOnHost>
  send: (report: ReplicaReport) => Promise<void>
  log: Logger
  longestWaitMs?: number
}

type Wanted = DatabaseMetricsOnHost['databases'][number]

// Each costs a few commands in the machine.
const databasesAtOnce = 4
/** An engine that answers later is not waited for. */
const longestAnswerSec = 15
/** The same for the machine, which may not answer at all. */
const usualWaitMs = (longestAnswerSec + 10) * 1000

// The script ends by itself also if nobody is left who would end it, and it is in no list of arguments.
const command = `exec timeout ${longestAnswerSec} /bin/sh -c 'eval "$KEELSON_SCRIPT"'`

/** Asks the engines of the databases on this host for metrics, each at most once at a time. */
export function makeDatabaseSampler({
  commands,
  machines,
  wanted,
  send,
  log,
  longestWaitMs = usualWaitMs,
}: Parts) {
  let now: DatabaseMetricsOnHost = { version: '', databases: [] }
  let version: string | null = null
  /** The last interval in which each database was asked. */
  const askedIn = new Map<string, number>()
  const busy = new Set<string>()

  async function ask({ id, machine_id, script }: Wanted): Promise<DatabaseSample[]> {
    busy.add(id)
    const asked = { command, mark: `metrics-${id}`, env: { KEELSON_SCRIPT: script } }
    const answer = commands
      .run(machine_id, id, { ...asked, timeoutSec: longestAnswerSec + 5 })
      .finally(() => busy.delete(id))
    const waiting = new AbortController()
    const late = delay(longestWaitMs, null, { signal: waiting.signal }).catch(() => null)
    try {
      const told = await Promise.race([answer, late])
      const values = metricsIn(told?.output ?? '')
      if (Object.keys(values).length) return [{ id, machine_id, time: new Date().toISOString(), values }]
      log.debug({ id, exit_code: told?.exit_code }, 'the engine of a database returned no metrics')
    } catch (err) {
      log.debug({ err, id }, 'the engine of a database was not asked') // it may start or end just now
    } finally {
      waiting.abort()
    }
    return []
  }

  /** Asks those that were not yet asked in their intervals. */
  async function sample(): Promise<void> {
    for (const id of askedIn.keys()) if (!now.databases.some((one) => one.id === id)) askedIn.delete(id)
    const running = new Set(machines())
    const due = now.databases.filter(
      (one) => running.has(one.machine_id) && !busy.has(one.id) && askedIn.get(one.id) !== intervalOf(one),
    )
    for (const one of due) askedIn.set(one.id, intervalOf(one))
    const told = (await mapAtOnce(due, databasesAtOnce, ask)).flat()
    for (let at = 0; at < told.length; at += samplesPerMessage) {
      const databases = told.slice(at, at + samplesPerMessage)
      await send({ samples: [], ended: [], healths: [], databases })
    }
  }

  return {
    sample,
    version: (): string | null => version,

    async apply(): Promise<void> {
      now = await wanted()
      version = now.version
    },

    /** Asks each engine in each of its intervals, until aborted. */
    async keep(signal: AbortSignal): Promise<void> {
      while (!signal.aborted) {
        await delay(sampleEveryMs - (Date.now() % sampleEveryMs), undefined, { signal }).catch(
          () => undefined,
        )
        if (signal.aborted) break
        await sample().catch((err: unknown) => log.warn({ err }, 'metrics of databases were not accepted'))
      }
    },
  }
}

const isMetric = (name: string): name is DatabaseMetric => (databaseMetrics as string[]).includes(name)

/** The interval that it is now, counted from the epoch. */
const intervalOf = ({ every_sec }: Wanted): number => Math.floor(Date.now() / (every_sec * 1000))

/** Reads the lines `metric VALUE NAME` of a script. */
export function metricsIn(output: string): DatabaseSample['values'] {
  const lines = output.matchAll(/^metric (\d{1,18}) ([a-z_]+)$/gm)
  return Object.fromEntries(
    [...lines].flatMap(([, value, name = '']) => (isMetric(name) ? [[name, Number(value)]] : [])),
  )
}
