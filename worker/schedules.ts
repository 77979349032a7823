import { setTimeout } from 'node:timers/promises'
import { type Client, ScheduleAlreadyRunning, type ScheduleOptions } from '@temporalio/client'
import type { Logger } from '../lib/log.ts'
import { platformQueue } from '../lib/operation-workflows.ts'

// One of each for the platform.

/** Looks after due renewals and expiring certificates. */
export const certificateSchedule = 'look-after-certificates'
/** Looks after tokens that end soon. */
export const connectorSchedule = 'look-after-connectors'

// Temporal may still be starting.
const againMs = 5_000

/**
 * Makes the platform's schedules, and changes those that differ from the settings. Every worker does so; the result is
 * the same.
 */
export function keepSchedules(
  client: Client,
  settings: { KEELSON_CERTIFICATE_CHECK_SEC: number; KEELSON_CONNECTOR_CHECK_SEC: number },
  log: Logger,
): { stop(): Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const schedules = [
    looking(certificateSchedule, 'lookAfterCertificates', settings.KEELSON_CERTIFICATE_CHECK_SEC),
    looking(connectorSchedule, 'lookAfterConnectors', settings.KEELSON_CONNECTOR_CHECK_SEC),
  ]

  async function keep(): Promise<void> {
    while (!signal.aborted) {
      try {
        for (const schedule of schedules) await ensure(client, schedule)
        return
      } catch (error) {
        log.warn({ err: error }, 'schedules were not made; trying again')
      }
      await setTimeout(againMs, undefined, { signal }).catch(() => undefined)
    }
  }

  const running = keep()
  return {
    async stop() {
      stopping.abort()
      await running
    },
  }
}

const looking = (scheduleId: string, workflowType: string, everySec: number): ScheduleOptions => ({
  scheduleId,
  spec: { intervals: [{ every: everySec * 1000 }] },
  action: { type: 'startWorkflow', workflowType, workflowId: scheduleId, taskQueue: platformQueue },
  // After an outage one look is enough, and two at once find the same.
  policies: { overlap: 'SKIP', catchupWindow: '1 minute' },
})

async function ensure(client: Client, options: ScheduleOptions): Promise<void> {
  try {
    await client.schedule.create(options)
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error
    const { spec, action, policies } = options
    await client.schedule
      .getHandle(options.scheduleId)
      .update(({ state }) => ({ spec, action, policies: { ...policies }, state }))
  }
}
