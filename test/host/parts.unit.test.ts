import { expect, test } from '@jest/globals'
import type { HostReport, ReportAnswer } from '../../lib/host-protocol.ts'
import { makeLogger } from '../../lib/log.ts'
import { activitiesOf, type HostPart } from '../../worker/host/part.ts'
import { keepReporting } from '../../worker/host/reporter.ts'

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
const log = makeLogger('host', 'fatal')

/** A part with lamps, which applies the wanted version once. */
function lamps() {
  const calls: string[] = []
  let version: string | null = null
  const part: HostPart = {
    name: 'lamps',
    kinds: ['lamp'],
    activities: { switchLampOnHost: async () => calls.push('switch') },
    observe: async () => [{ kind: 'lamp', id: 'l1', state: 'on', watts: 5 }],
    observed: () => void calls.push('observed'),
    remove: (ids) => void calls.push(`remove ${ids.join()}`),
    bringAbout: (things) =>
      void calls.push(`bring about ${things.map(({ id, state }) => id + state).join()}`),
    version: () => version,
    async applyWanted() {
      calls.push('apply')
      version = 'v2'
    },
  }
  return { part, calls }
}

/** Reports until that many answers were handled. */
async function reporting(
  parts: HostPart[],
  answers: Partial<ReportAnswer>[],
  machines: () => HostReport['machines'] = () => null,
): Promise<HostReport[]> {
  const reports: HostReport[] = []
  const stop = new AbortController()
  const send = async (report: HostReport): Promise<ReportAnswer> => {
    if (reports.length === answers.length) {
      stop.abort()
      throw new Error('stopped')
    }
    reports.push(report)
    return {
      jwks: { keys: [] },
      data_plane_url: 'https://127.0.0.1:1',
      not_yours: [],
      things: [],
      wanted: {},
      ...answers[reports.length - 1],
    }
  }
  await keepReporting({ parts, about, machines, send, log, everyMs: 10 }, stop.signal)
  return reports
}

test('a host with one more part reports that part’s things and applies its wanted version, once', async () => {
  const { part, calls } = lamps()
  const other: HostPart = { name: 'other', kinds: ['other'], observe: async () => [], version: () => 'same' }
  const wanted = { lamps: 'v2', other: 'same' }
  const reports = await reporting([other, part], [{ wanted }, { wanted }, { wanted: {} }])
  for (const { things } of reports)
    expect(things).toEqual([{ kind: 'lamp', id: 'l1', state: 'on', watts: 5 }])
  expect(calls.filter((call) => call === 'apply')).toHaveLength(1)
  expect(calls[0]).toBe('observed')
})

test('a version that failed to apply is retried with the next answer', async () => {
  let tries = 0
  const part: HostPart = {
    name: 'lamps',
    version: () => null,
    async applyWanted() {
      tries++
      throw new Error('no current')
    },
  }
  await reporting([part], [{ wanted: { lamps: 'v2' } }, { wanted: { lamps: 'v2' } }])
  expect(tries).toBe(2)
})

test('a part gets only its own kinds', async () => {
  const { part, calls } = lamps()
  await reporting(
    [part],
    [
      {
        not_yours: [
          { kind: 'lamp', id: 'l1' },
          { kind: 'disk', id: 'd1' },
        ],
        things: [
          { kind: 'lamp', id: 'l2', state: 'off' },
          { kind: 'disk', id: 'd2', state: 'detached' },
        ],
      },
    ],
  )
  expect(calls).toEqual(expect.arrayContaining(['remove l1', 'bring about l2off']))
})

test('a host’s activities are those of its parts', () => {
  expect(Object.keys(activitiesOf([lamps().part, { name: 'none' }]))).toEqual(['switchLampOnHost'])
})

test('the machine engine is in the first report after it is found', async () => {
  const engine = { name: 'qemu', version: '7.2', accelerator: 'tcg' as const, kernel: '6.1' }
  let asked = 0
  const reports = await reporting([], [{}, {}, {}], () => (asked++ ? engine : null))
  expect(reports.map(({ machines }) => machines)).toEqual([null, engine, engine])
})
