import { setTimeout as delay } from 'node:timers/promises'
import type { ContainerSample } from '../../drivers/containers.ts'
import type { FoundInstance, InstanceEngine } from '../../drivers/instances.ts'
import {
  type HostSamples,
  type InstanceSample,
  sampleEveryMs,
  samplesPerMessage,
} from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'

interface Parts {
  engine: Pick<InstanceEngine, 'sample'>
  /** Those that are here now. */
  instances: () => FoundInstance[]
  send: (samples: HostSamples) => Promise<void>
  log: Logger
}

/**
 * Tells every 10 s, by the clock, what the instances here have used, until aborted. What was not accepted is not made up
 * for: the next samples have it in their counters.
 */
export async function keepSampling(
  { engine, instances, send, log }: Parts,
  signal: AbortSignal,
): Promise<void> {
  const marks = makeMarks()
  while (!signal.aborted) {
    // By the clock, so that each step of a chart has its sample.
    await delay(sampleEveryMs - (Date.now() % sampleEveryMs), undefined, { signal }).catch(() => undefined)
    if (signal.aborted) break
    try {
      const samples = marks.mark(await engine.sample(instances()))
      for (let at = 0; at < samples.length; at += samplesPerMessage) {
        await send({ samples: samples.slice(at, at + samplesPerMessage) })
      }
      marks.accepted(samples)
    } catch (error) {
      log.warn({ err: error }, 'the samples were not taken or not accepted')
    }
  }
}

/** Says which samples are to be kept by minute, from those that were accepted before. */
export function makeMarks() {
  const last = new Map<string, InstanceSample>()

  return {
    /** Of a run that has ended, its last sample comes once more: what it counted since the minute began is in it alone. */
    mark(samples: ContainerSample[]): InstanceSample[] {
      const runs = new Map(samples.map(({ id, started_at }) => [id, started_at]))
      const ended = [...last.values()].filter(({ id, started_at }) => runs.get(id) !== started_at)
      const present = samples.map((sample) => {
        const before = last.get(sample.id)
        const by_minute =
          before?.started_at !== sample.started_at || minuteOf(before.time) !== minuteOf(sample.time)
        return { ...sample, by_minute }
      })
      return [
        ...ended.filter(({ by_minute }) => !by_minute).map((sample) => ({ ...sample, by_minute: true })),
        ...present,
      ]
    },
    accepted(samples: InstanceSample[]): void {
      last.clear()
      for (const sample of samples) last.set(sample.id, sample)
    },
  }
}

const minuteOf = (time: string): number => Math.floor(Date.parse(time) / 60_000)
