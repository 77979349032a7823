import { afterEach, expect, test } from '@jest/globals'
import type { HostReport } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { makeLogger } from '../../lib/log.ts'
import { observeInstances } from '../../worker/host/instances.ts'
import { keepReporting } from '../../worker/host/reporter.ts'
import { containerSpec, docker, engine, removeTestContainers } from '../support/containers.ts'
import { eventually } from '../support/eventually.ts'

afterEach(removeTestContainers)

const about = async () => ({
  data_plane_url: 'https://127.0.0.1:1',
  data_plane_certificate: '-',
  address: '127.0.0.1',
  capacity: { cpu_cores: 1, memory_mib: 1, disk_gib: 1 },
  engine: { name: 'docker', version: '1' },
  kinds: ['container' as const],
  underlay_address: null,
  tunnel_key: null,
  published_ports: { range: [20_000, 29_999] as const, reserved: [] },
})

// No periodic report during a test: each report is caused by an event.
const never = 3_600_000

/** Collects the reports while `work` runs. `accept` may refuse a report by throwing. */
async function reporting(
  work: (reports: HostReport[]) => Promise<void>,
  accept: (report: HostReport) => void | Promise<void> = () => undefined,
): Promise<void> {
  const stop = new AbortController()
  const reports: HostReport[] = []
  const send = async (report: HostReport) => {
    await accept(report)
    reports.push(report)
    return {
      jwks: { keys: [] },
      data_plane_url: 'https://127.0.0.1:1',
      not_yours: [],
      things: [],
      wanted: {},
    }
  }
  const log = makeLogger('host', 'error')
  const running = keepReporting(
    {
      parts: [{ name: 'containers', ...observeInstances(engine, log) }],
      about,
      machines: () => null,
      send,
      log,
      everyMs: never,
    },
    stop.signal,
  )
  try {
    await work(reports)
  } finally {
    stop.abort()
    await running
  }
}

const stateOf = (reports: HostReport[], id: string) => reports.at(-1)?.things.find((thing) => thing.id === id)

test('a change of a container is reported when it happens', async () => {
  const spec = containerSpec({ restart_policy: 'never' })
  await reporting(async (reports) => {
    await eventually(() => reports.length > 0)
    await engine.run(spec, {}, newId())
    await eventually(() => stateOf(reports, spec.id)?.state === 'running')
    await docker.getContainer(`keelson-${spec.id}`).kill()
    const ended = await eventually(
      () => stateOf(reports, spec.id)?.state === 'exited' && stateOf(reports, spec.id),
    )
    expect(ended).toMatchObject({ exit_code: 137, kind: 'container' })
    await engine.remove(spec.id)
    await eventually(() => stateOf(reports, spec.id) === undefined)
  })
})

test('the next report, which is complete, makes up for a refused one', async () => {
  const spec = containerSpec()
  let refusals = 2
  await engine.run(spec, {}, newId())
  await reporting(
    async (reports) => {
      const known = await eventually(() => stateOf(reports, spec.id))
      expect(known.state).toBe('running')
      expect(refusals).toBe(0)
    },
    () => {
      if (refusals === 0) return
      refusals--
      throw new Error('the API is away')
    },
  )
})

test('reports never overlap, and are at most about five a second', async () => {
  const spec = containerSpec()
  let open = 0
  let most = 0
  const times: number[] = []
  await reporting(
    async () => {
      // On a busy machine one report covers several changes.
      while (times.length < 5) {
        await engine.run(spec, {}, newId())
        await engine.remove(spec.id)
      }
    },
    async () => {
      times.push(Date.now())
      most = Math.max(most, ++open)
      await engine.list()
      open--
    },
  )
  expect(most).toBe(1)
  const gaps = times.slice(1).map((time, index) => time - (times[index] ?? 0))
  expect(Math.min(...gaps)).toBeGreaterThan(190)
})
