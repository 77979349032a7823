import { existsSync } from 'node:fs'
import { afterEach, describe, expect, test } from '@jest/globals'
import type { ContainerSample } from '../../drivers/containers.ts'
import { newId } from '../../lib/ids.ts'
import { HostSamples } from '../../lib/host-protocol.ts'
import { makeMarks } from '../../worker/host/sampler.ts'
import { docker, engine, removeTestContainers, shell } from '../support/containers.ts'
import { eventually } from '../support/eventually.ts'
import { exchange } from '../support/exchange.ts'

afterEach(removeTestContainers)

async function sampleOf(id: string): Promise<ContainerSample | undefined> {
  const found = await engine.find(id)
  return found ? (await engine.sample([found]))[0] : undefined
}

describe('a sample', () => {
  test('has the kernel’s counters of a container since its start', async () => {
    const script = 'x=$(head -c 4194304 /dev/zero | tr "\\0" x); while :; do :; done'
    const spec = shell(script, { cpu_cores: 0.5, memory_mib: 64 })
    await engine.run(spec, {}, newId())
    const first = await eventually(async () => {
      const sample = await sampleOf(spec.id)
      return sample && sample.memory_bytes > 4_194_304 && sample.cpu_ms > 100 && sample
    })
    expect(first.memory_bytes).toBeLessThan(64 * 1024 ** 2)
    const later = await eventually(async () => {
      const sample = await sampleOf(spec.id)
      return sample && sample.cpu_ms > first.cpu_ms + 500 && sample
    })
    const overMs = Date.parse(later.time) - Date.parse(first.time)
    expect((later.cpu_ms - first.cpu_ms) / overMs).toBeLessThan(0.75)
    expect(later.started_at).toBe(first.started_at)
  })

  test('has the bytes of its network and its disk', async () => {
    const script =
      'dd if=/dev/zero of=/x bs=4096 count=50 oflag=direct; head -c 3000000 /dev/zero | nc -l -p 80 >/dev/null; sleep 600'
    const spec = shell(script, { restart_policy: 'never' })
    await engine.run(spec, {}, newId())
    const { NetworkSettings } = await docker.getContainer(`keelson-${spec.id}`).inspect()
    const [network] = Object.values(NetworkSettings.Networks)
    await eventually(() => exchange(network?.IPAddress ?? '', 80, 1_000_000))
    const sample = await eventually(async () => {
      const now = await sampleOf(spec.id)
      return (now?.net_rx_bytes ?? 0) > 1_000_000 && now // the last bytes may be on their way
    })
    expect(sample?.net_tx_bytes).toBeGreaterThan(3_000_000)
    // In version 1 of control groups it depends on the kernel whether these are counted.
    if (existsSync('/sys/fs/cgroup/cgroup.controllers'))
      expect(sample?.disk_write_bytes).toBeGreaterThanOrEqual(50 * 4096)
  })

  test('belongs to a new run after a restart, and a stopped container has none', async () => {
    const spec = shell('sleep 600')
    await engine.run(spec, {}, newId())
    const before = await sampleOf(spec.id)
    const stale = await engine.find(spec.id)
    await engine.stop(spec.id, 0)
    expect(await sampleOf(spec.id)).toBeUndefined()
    expect(stale && (await engine.sample([stale]))).toEqual([])
    await engine.run(spec, {}, newId())
    const after = await sampleOf(spec.id)
    expect(Date.parse(after?.started_at ?? '')).toBeGreaterThan(Date.parse(before?.time ?? ''))
  })
})

const sample = (over: Partial<ContainerSample>): ContainerSample => ({
  id: 'one',
  time: '2030-01-01T00:00:00.000Z',
  started_at: '2029-12-31T00:00:00.000Z',
  cpu_ms: 1,
  memory_bytes: 1,
  net_rx_bytes: 1,
  net_tx_bytes: 1,
  disk_read_bytes: 1,
  disk_write_bytes: 1,
  ...over,
})
const at = (second: number, over: Partial<ContainerSample> = {}): ContainerSample =>
  sample({ time: new Date(Date.parse('2030-01-01') + second * 1000).toISOString(), ...over })

/** Which of these samples are marked; refused ones are not remembered. */
function marked(rounds: { samples: ContainerSample[]; accepted?: boolean }[]) {
  const marks = makeMarks()
  return rounds.map(({ samples, accepted = true }) => {
    const said = marks.mark(samples)
    expect(HostSamples.safeParse({ samples: said }).success).toBe(true)
    if (accepted) marks.accepted(said)
    return said
      .filter(({ by_minute }) => by_minute)
      .map(({ time }) => (new Date(time).getTime() / 1000) % 3600)
  })
}

describe('the record by minute', () => {
  test('keeps the first sample of a minute', () => {
    const rounds = [0, 10, 20, 30, 40, 50, 60, 70, 130].map((second) => ({ samples: [at(second)] }))
    expect(marked(rounds).flat()).toEqual([0, 60, 130])
  })

  test('keeps the last sample of a run, once, and the first of the next', () => {
    const started_at = '2030-01-01T00:00:12.000Z'
    const rounds = [{ samples: [at(0)] }, { samples: [at(10)] }, { samples: [at(20, { started_at })] }]
    expect(marked([...rounds, { samples: [] }, { samples: [] }])).toEqual([[0], [], [10, 20], [], []])
    expect(marked([{ samples: [at(0)] }, { samples: [at(10)] }, { samples: [] }, { samples: [] }])).toEqual([
      [0],
      [],
      [10],
      [],
    ])
  })

  test('marks a sample again if it was not accepted', () => {
    const rounds = [{ samples: [at(50)] }, { samples: [at(60)], accepted: false }, { samples: [at(70)] }]
    expect(marked(rounds)).toEqual([[50], [60], [70]])
  })
})
