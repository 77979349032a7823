import { NativeConnection, Worker } from '@temporalio/worker'
import { failures } from '../../activities/failures.ts'
import { heartbeats } from '../../activities/heartbeats.ts'
import { measured } from '../../activities/measured.ts'
import type { Settings } from '../../config.ts'
import type { Logger } from '../../lib/log.ts'
import { dataConverter, hostQueue } from '../../lib/temporal.ts'
import { makeBackoff } from '../retry.ts'

interface With {
  hostId: string
  activities: object
  onStarted: () => void
  log: Logger
}

/** Runs the worker of the host's queue until aborted. Reconnects when Temporal is lost. */
export async function keepWorking(
  settings: Settings<'host'>,
  { log, ...of }: With,
  signal: AbortSignal,
): Promise<void> {
  const backoff = makeBackoff()
  while (!signal.aborted) {
    try {
      await work(settings, of, signal)
    } catch (error) {
      log.warn({ err: error }, 'no work from Temporal; trying again')
      await backoff.wait(signal)
    }
  }
}

/** Runs one worker until the host stops or the Temporal connection is lost. */
async function work(
  settings: Settings<'host'>,
  { hostId, activities, onStarted }: Omit<With, 'log'>,
  signal: AbortSignal,
): Promise<void> {
  const connection = await NativeConnection.connect({ address: settings.KEELSON_TEMPORAL_ADDRESS })
  try {
    const worker = await Worker.create({
      connection,
      namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
      taskQueue: hostQueue(hostId),
      activities,
      interceptors: { activity: [measured, heartbeats, failures] },
      dataConverter: dataConverter(settings),
      // Most activities only wait: for a grace period, a download, or a turn to start. With a low limit, one tenant's
      // slow stops would block other tenants' starts.
      maxConcurrentActivityTaskExecutions: 200,
      // A cancellation arrives with the answer to a heartbeat.
      maxHeartbeatThrottleInterval: '2 s',
      // A start that has begun ends within this time. Waiting activities are then cancelled and retried by the next
      // worker.
      shutdownGraceTime: '3 s',
      shutdownForceTime: '6 s',
    })
    const stopped = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
    await worker.runUntil(async () => {
      onStarted()
      if (!signal.aborted) await stopped
    })
  } finally {
    await connection.close()
  }
}
