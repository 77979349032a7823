import '../../models/index.ts'
import { records } from '../../models/compute/samples.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { quantile, type Row, timed } from './measure.ts'
import type { Stack } from './stack.ts'

const asks = 200
const dayMs = 86_400_000

/** Reading one container's metrics of 24 hours, and of the last hour, with both records full. */
export async function metrics(stack: Stack): Promise<Row[]> {
  const { body: account } = await stack.request<{ tenant_id: string }>('GET', '/api/v1/account')
  const { id } = await stack.finish('POST', '/api/v1/containers', {
    name: 'bench-metrics',
    image: 'busybox',
    cpu_cores: 0.1,
    memory_mib: 16,
    start: false,
  })
  await connectDatabase({
    KEELSON_MONGODB_URL: stack.mongodbUrl,
    KEELSON_MASTER_KEY_FILE: stack.masterKeyFile,
  })
  const meta = { tenant_id: account.tenant_id, instance_id: id }
  const nowMs = Date.now()
  try {
    for (const { model, everyMs, keptSec } of Object.values(records)) {
      const count = (keptSec * 1_000) / everyMs
      const rows = Array.from({ length: count }, (_, i) => ({
        meta,
        time: new Date(nowMs - (count - i) * everyMs),
        started_at: new Date(nowMs - 30 * dayMs),
        cpu_ms: i * 997,
        memory_bytes: 2 ** 25 + ((i * 7_919) % 2 ** 20),
        net_rx_bytes: i * 1_009,
        net_tx_bytes: i * 1_013,
        disk_read_bytes: i * 1_019,
        disk_write_bytes: i * 1_021,
      }))
      await model.collection.insertMany(rows)
    }
    const path = `/api/v1/containers/${id}/metrics`
    const day = await took(stack, `${path}?from=${new Date(nowMs - dayMs).toISOString()}`)
    const hour = await took(stack, path)
    return [
      { what: 'metrics of 24 h, p50', unit: 'ms', figures: [quantile(day, 0.5)], note: '< 50' },
      { what: 'metrics of 24 h, p99', unit: 'ms', figures: [quantile(day, 0.99)] },
      { what: 'metrics of 1 h, p50', unit: 'ms', figures: [quantile(hour, 0.5)] },
    ]
  } finally {
    for (const { model } of Object.values(records))
      await model.collection.deleteMany({ 'meta.tenant_id': meta.tenant_id, 'meta.instance_id': id })
    await disconnectDatabase()
    await stack.finish('DELETE', `/api/v1/containers/${id}`)
  }
}

async function took(stack: Stack, path: string): Promise<number[]> {
  const figures: number[] = []
  for (let ask = 0; ask < asks; ask++) {
    figures.push(
      await timed(async () => {
        const { status } = await stack.request('GET', path)
        if (status !== 200) throw new Error(`${path}: ${status}`)
      }),
    )
  }
  return figures
}
