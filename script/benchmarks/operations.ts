import { type Row, quantile, timed } from './measure.ts'
import { cpuMs, type Stack } from './stack.ts'

const lanes = 50
const total = 1_000

/** A thousand changes of stopped containers: each is accepted, run as a workflow and recorded. */
export async function operations(stack: Stack): Promise<Row[]> {
  const made = await Promise.all(
    Array.from({ length: lanes }, (_, lane) =>
      stack.finish('POST', '/api/v1/containers', {
        name: `bench-operations-${lane}`,
        image: 'busybox',
        cpu_cores: 0.1,
        memory_mib: 16,
        start: false,
      }),
    ),
  )
  const pids = await stack.pids()
  const before = cpuMs(pids)
  const seconds: number[] = []
  const each: number[] = []
  for (let round = 0; round < 3; round++) {
    const all = await timed(() =>
      Promise.all(
        made.map(async ({ id }) => {
          for (let turn = 0; turn < total / lanes; turn++) {
            const change = { memory_mib: 16 + ((turn + round) % 8) }
            each.push(await timed(() => stack.finish('PUT', `/api/v1/containers/${id}`, change)))
          }
        }),
      ),
    )
    seconds.push(all / 1000)
  }
  const after = cpuMs(pids)
  await Promise.all(made.map(({ id }) => stack.finish('DELETE', `/api/v1/containers/${id}`)))
  return [
    { what: `${total} operations, ${lanes} at a time`, unit: 's', figures: seconds, note: '< 25' },
    { what: 'each of them, p50 and p99', unit: 'ms', figures: [quantile(each, 0.5), quantile(each, 0.99)] },
    ...Object.keys(pids).map((role) => ({
      what: `cpu of ${role} for each`,
      unit: 'ms',
      figures: [((after[role] ?? 0) - (before[role] ?? 0)) / each.length],
    })),
  ]
}
