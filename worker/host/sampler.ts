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

/** Takes samples and sends them. Rejected samples are not repeated: the next ones include their counters. */
export type TakeSamples = () => Promise<void>

/** Takes all samples every 10 s until aborted. */
export async function keepSampling(takes: TakeSamples[], log: Logger, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    // Aligned to the clock, so that each step of a chart has a sample.
    await delay(sampleEveryMs - (Date.now() % sampleEveryMs), undefined, { signal }).catch(() => undefined)
    if (signal.aborted) break
    for (const one of await Promise.allSettled(takes.map((take) => take())))
      if (one.status === 'rejected')
        log.warn({ err: one.reason }, 'the samples were not taken or not accepted')
  }
}

interface Parts {
  engine: Pick<InstanceEngine, 'sample'>
  /** The instances on this host. */
  instances: () => FoundInstance[]
  send: (samples: HostSamples) => Promise<void>
}

/** Samples the usage of instances. */
export function sampleInstances({ engine, instances, send }: Parts): TakeSamples {
  const marks = makeMarks()
  return async () => {
    const samples = marks.mark(await engine.sample(instances()))
    for (let at = 0; at < samples.length; at += samplesPerMessage) {
      await send({ samples: samples.slice(at, at + samplesPerMessage) })
    }
    marks.accepted(samples)
  }
}

/** Marks which samples are stored by minute, based on the samples accepted before. */
export function makeMarks<S extends ContainerSample = ContainerSample>() {
  type Marked = S & Pick<InstanceSample, 'by_minute'>
  const last = new Map<string, Marked>()

  return {
    /** Repeats the last sample of an ended run: only it has what was used since the minute began. */
    mark(samples: S[]): Marked[] {
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
    accepted(samples: Marked[]): void {
      last.clear()
      for (const sample of samples) last.set(sample.id, sample)
    },
  }
}

const minuteOf = (time: string): number => Math.floor(Date.parse(time) / 60_000)
