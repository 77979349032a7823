import { setTimeout } from 'node:timers/promises'
import { type Client, ScheduleAlreadyRunning, type ScheduleOptions } from '@temporalio/client'
import type { Logger } from '../lib/log.ts'
import { platformQueue } from '../lib/operation-workflows.ts'

/** Looks after due renewals and expiring certificates. One for the platform. */
export const certificateSchedule = 'look-after-certificates'

// Temporal may still be starting.
const againMs = 5_000

/**
 * Makes the platform's schedules, and changes those that differ from the settings. Every worker does so; the result is
 * the same.
 */
export function keepSchedules(
  client: Client,
  { KEELSON_CERTIFICATE_CHECK_SEC }: { KEELSON_CERTIFICATE_CHECK_SEC: number },
  log: Logger,
): { stop(): Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const certificates: ScheduleOptions = {
    scheduleId: certificateSchedule,
    spec: { intervals: [{ every: KEELSON_CERTIFICATE_CHECK_SEC * 1000 }] },
    action: {
      type: 'startWorkflow',
      workflowType: 'lookAfterCertificates',
      workflowId: certificateSchedule,
      taskQueue: platformQueue,
    },
    // After an outage one look is enough, and two at once find the same.
    policies: { overlap: 'SKIP', catchupWindow: '1 minute' },
  }

  async function keep(): Promise<void> {
    while (!signal.aborted) {
      try {
        return await ensure(client, certificates)
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
