import { growthRows, type Point, type Row, timed } from '../measure.ts'
import { cpuMs, type Stack } from '../stack.ts'
import { makeHosts, removeHosts, type SimulatedHost, startedAt } from './hosts.ts'
import { putContainers, withStored } from './stored.ts'

const rounds = 15
const lanes = 10
// A host reports every 10 s.
const reportsPerSec = 0.1
const perHost = 20

/** The response time to a host's report, with growing numbers of instances in it. */
export async function growingReport(stack: Stack, sizes = [20, 200, 1_000]): Promise<Row[]> {
  const hosts = await makeHosts(stack, sizes.length)
  try {
    return await withStored(stack, async (template) => {
      const points: Point[] = []
      for (const [index, size] of sizes.entries()) {
        const host = hosts[index] as SimulatedHost
        const ids = await putContainers(template, size, running(host))
        await host.report(ids) // warm-up
        const figures: number[] = []
        for (let round = 0; round < rounds; round++) figures.push(await timed(() => host.report(ids)))
        points.push({ size, figures })
      }
      return growthRows((n) => `a host’s report of ${n} instances`, 'ms', points, 1)
    })
  } finally {
    await removeHosts(stack, hosts)
  }
}

/** CPU time of the API and of MongoDB for one report, with growing numbers of hosts that report in turns. */
export async function growingFleet(stack: Stack, sizes = [10, 100, 500], reports = 1_000): Promise<Row[]> {
  const hosts: SimulatedHost[] = []
  try {
    return await withStored(stack, async (template) => {
      const { api = 0, mongodb = 0 } = await stack.pids()
      const cpu: Record<'api' | 'mongodb', Point[]> = { api: [], mongodb: [] }
      const reported: (() => Promise<void>)[] = []
      for (const size of sizes) {
        const more = await makeHosts(stack, size - hosts.length, hosts.length)
        hosts.push(...more)
        for (const host of more) {
          const ids = await putContainers(template, perHost, running(host))
          reported.push(() => host.report(ids))
        }
        await inLanes(reported, size) // warm-up
        const before = cpuMs({ api, mongodb })
        await inLanes(reported, reports)
        const after = cpuMs({ api, mongodb })
        for (const role of ['api', 'mongodb'] as const) {
          const each = ((after[role] ?? 0) - (before[role] ?? 0)) / reports
          cpu[role].push({ size, figures: [each] })
        }
      }
      const last = cpu.api.at(-1)
      const share = ((last?.figures[0] ?? 0) * (last?.size ?? 0) * reportsPerSec) / 1_000
      return [
        ...growthRows((n) => `cpu of api for a report, of ${n} hosts`, 'ms', cpu.api, 0.1),
        ...growthRows((n) => `cpu of mongodb for a report, of ${n} hosts`, 'ms', cpu.mongodb, 0.1),
        { what: `core that an api gives to ${last?.size} hosts`, unit: '', figures: [share] },
      ]
    })
  } finally {
    await removeHosts(stack, hosts)
  }
}

/** A running container, about which the report changes nothing. */
const running = ({ id }: SimulatedHost) => ({
  host_id: id,
  status: 'running',
  desired_state: 'running',
  started_at: startedAt,
  updated_at: startedAt,
})

async function inLanes(work: (() => Promise<void>)[], times: number): Promise<void> {
  const lane = async (_: unknown, first: number): Promise<void> => {
    for (let turn = first; turn < times; turn += lanes) await work[turn % work.length]?.()
  }
  await Promise.all(Array.from({ length: lanes }, lane))
}
