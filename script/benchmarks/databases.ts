import { engineOf, type DatabaseType } from '../../models/deploy/engines/index.ts'
import { allCores, type Bench, onWorker, runBare, runService } from './database-workers.ts'
import { median, type Row, timed } from './measure.ts'
import type { Stack } from './stack.ts'

const rounds = 5

/**
 * Databases from their creation to running, beside the same images run by hand in the same worker, in turn: as a container, and
 * as a service of Swarm, which is what the platform makes.
 */
export const databases = (stack: Stack): Promise<Row[]> =>
  onWorker(stack, async (bench) => {
    const rows: Row[] = []
    for (const type of bench.types) {
      const { ours, bare, service } = await startsOf(bench, type)
      rows.push(
        { what: `${type}: create to running`, unit: 'ms', figures: ours },
        { what: `${type}: \`docker run\` until it answers`, unit: 'ms', figures: bare },
        { what: `${type}: more, at p50`, unit: 'ms', figures: [median(ours) - median(bare)], note: '≤ 300' },
        { what: `${type}: \`docker service create\` until it answers`, unit: 'ms', figures: service },
        { what: `${type}: more than that, at p50`, unit: 'ms', figures: [median(ours) - median(service)] },
      )
    }
    return rows
  })

/** The round before the first gets the image into the worker. */
async function startsOf(bench: Bench, type: DatabaseType) {
  const { stack, path } = bench
  const [ours, bare, service]: [number[], number[], number[]] = [[], [], []]
  const memory_mib = engineOf(type).memory_mib.usual
  for (let round = 0; round <= rounds; round++) {
    const fields = { name: `${type}-${round}`, type, memory_mib, cpu_cores: allCores }
    let made = { id: '', state: '' }
    const took = await timed(async () => {
      made = await stack.finish('POST', `${path}/databases`, fields)
    })
    if (made.state !== 'succeeded') throw new Error(`no ${type}: its creation ${made.state}`)
    await stack.finish('DELETE', `${path}/databases/${made.id}?delete_volumes=true`)
    const engine = await runBare(bench, type, memory_mib)
    await engine.remove()
    const tookService = await runService(bench, type, memory_mib)
    if (round === 0) continue
    ours.push(took)
    bare.push(engine.tookMs)
    service.push(tookService)
  }
  return { ours, bare, service }
}
