import { setTimeout as delay } from 'node:timers/promises'
import { mapAtOnce } from '../../lib/queue.ts'
import { median, quantile, type Row, timed } from './measure.ts'
import type { As, Stack } from './stack.ts'
import { create, tenants } from './turns.ts'

const loops = Number(process.env['KEELSON_BENCH_LOOPS'] ?? 200)
const forMs = Number(process.env['KEELSON_BENCH_LOOPS_SEC'] ?? 300) * 1_000
const createsAtOnce = 16
const aloneRounds = 10
const readsEveryMs = 100
const createsEveryMs = 10_000

interface Host {
  status: string
  engine_silent_since: string | null
}

/**
 * What 200 containers of one tenant that end again and again do to another tenant's creates and reads for five minutes,
 * on one host.
 */
export async function crashLoops(stack: Stack): Promise<Row[]> {
  const [looper, other] = await tenants(stack)
  const good = async (): Promise<number> => {
    let id = ''
    const ms = await timed(async () => (id = await create(other, { command: ['sleep', '3600'] })))
    await other.finish('DELETE', `/api/v1/containers/${id}`)
    return ms
  }
  await good() // warm-up
  const alone: number[] = []
  for (let round = 0; round < aloneRounds; round++) alone.push(await good())

  const loop = { command: ['sh', '-c', 'sleep 2; exit 3'] }
  const ids = await mapAtOnce(Array.from({ length: loops }), createsAtOnce, () => create(looper, loop))
  const end = performance.now() + forMs
  const beside: number[] = []
  const reads: number[] = []
  const unreachable: number[] = []
  async function keepReading(): Promise<void> {
    while (performance.now() < end) {
      reads.push(await timed(() => other.request('GET', '/api/v1/containers')))
      const { body } = await stack.request<{ items: Host[] }>('GET', '/api/v1/platform/hosts')
      unreachable.push(body.items.filter(({ status }) => status !== 'active').length)
      await delay(readsEveryMs)
    }
  }
  const reading = keepReading()
  while (performance.now() < end) {
    beside.push(await good())
    await delay(createsEveryMs)
  }
  await reading

  const entries = await mapAtOnce(ids, createsAtOnce, (id) => entriesOf(looper, id))
  const listed = await looper.request<{ items: { restart_count: number }[]; total: number }>(
    'GET',
    '/api/v1/containers?limit=100',
  )
  const restarts = listed.body.items.map(({ restart_count }) => restart_count)
  await mapAtOnce(ids, createsAtOnce, (id) => looper.finish('DELETE', `/api/v1/containers/${id}`))
  return [
    { what: 'create to running, alone', unit: 'ms', figures: alone },
    { what: `the same beside ${loops} crash loops`, unit: 'ms', figures: beside },
    { what: 'ratio', unit: '', figures: [median(beside) / median(alone)], note: '≤ 2' },
    { what: '`GET` of a list beside them', unit: 'ms', figures: reads },
    { what: 'its p99', unit: 'ms', figures: [quantile(reads, 0.99)], note: '≤ 250' },
    { what: 'hosts that are not active', unit: '', figures: unreachable, note: '0' },
    { what: 'restarts of each of 100 loops', unit: '', figures: restarts },
    { what: 'entries of a loop’s feed', unit: '', figures: entries, note: '≤ 20' },
  ]
}

async function entriesOf(tenant: As, id: string): Promise<number> {
  const feed = `/api/v1/containers/${id}/activity?limit=1`
  return (await tenant.request<{ total: number }>('GET', feed)).body.total
}
