import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Client, Connection } from '@temporalio/client'
import { connectWrites } from './bare/writes.ts'
import { type Row, quantile, ratios, timed } from './measure.ts'
import { cpuMs, type Stack } from './stack.ts'

const lanes = 50
const rounds = 3
/** Both sides take turns this often in a round: the speed of a shared machine changes within a minute. */
const turnsEach = 5
const bareQueue = 'bench-bare'

const both = (figures: number[]): number[] => [quantile(figures, 0.5), quantile(figures, 0.99)]

/**
 * A thousand changes of stopped containers: each is accepted, run as a workflow and recorded. In turns with as many
 * bare workflows on the same Temporal and MongoDB, which make the same writes (bare/writes.ts).
 */
export async function operations(stack: Stack, total = 1_000): Promise<Row[]> {
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
  const bare = await startBare(
    stack,
    made.map(({ id }) => id),
  )
  const change = (lane: number, memory_mib: number) =>
    stack.finish('PUT', `/api/v1/containers/${made[lane]?.id}`, { memory_mib })
  const pids = await stack.pids()
  const ours = makeMeasure(pids, change, total)
  const { mongodb = 0, temporal = 0 } = pids
  const theirs = makeMeasure(
    { mongodb, temporal, worker: bare.pid },
    (lane, memoryMib) => bare.change(lane, memoryMib),
    total,
  )
  try {
    for (let round = 0; round <= rounds; round++) {
      for (let turn = 0; turn < turnsEach; turn++) {
        await ours.run(round)
        await theirs.run(round)
      }
    }
  } finally {
    await bare.stop()
    await Promise.all(made.map(({ id }) => stack.finish('DELETE', `/api/v1/containers/${id}`)))
  }
  const cpuOf = (measure: typeof ours, of: string): Row[] =>
    Object.entries(measure.cpu).map(([role, figures]) => ({
      what: `cpu of ${role} for each ${of}`,
      unit: 'ms',
      figures,
    }))
  return [
    { what: `${total} operations, ${lanes} at a time`, unit: 's', figures: ours.seconds },
    { what: `${total} bare workflows with the same writes`, unit: 's', figures: theirs.seconds },
    { what: 'ratio', unit: '', figures: ratios(theirs.seconds, ours.seconds), note: '≥ 0.7' },
    { what: 'each operation, p50 and p99', unit: 'ms', figures: both(ours.each) },
    { what: 'each bare workflow, p50 and p99', unit: 'ms', figures: both(theirs.each) },
    ...cpuOf(ours, 'operation'),
    ...cpuOf(theirs, 'bare workflow'),
  ]
}

/** Runs changes in `lanes`, each time a part of a round; round 0 is a warm-up. CPU time is per change. */
function makeMeasure(
  pids: Record<string, number>,
  change: (lane: number, memoryMib: number) => Promise<unknown>,
  total: number,
) {
  const seconds: number[] = []
  const each: number[] = []
  const cpu: Record<string, number[]> = Object.fromEntries(
    [...Object.keys(pids), 'client'].map((role) => [role, []]),
  )
  const withClient = { ...pids, client: process.pid }
  const perTurn = total / turnsEach
  return {
    seconds,
    each,
    cpu,
    async run(round: number): Promise<void> {
      const before = cpuMs(withClient)
      const took: number[] = []
      const all = await timed(() =>
        Promise.all(
          Array.from({ length: lanes }, async (_, lane) => {
            for (let turn = 0; turn < perTurn / lanes; turn++)
              took.push(await timed(() => change(lane, 16 + ((turn + round) % 8))))
          }),
        ),
      )
      if (round === 0) return
      const after = cpuMs(withClient)
      seconds[round - 1] = (seconds[round - 1] ?? 0) + all / 1000
      each.push(...took)
      for (const [role, figures] of Object.entries(cpu))
        figures[round - 1] = (figures[round - 1] ?? 0) + ((after[role] ?? 0) - (before[role] ?? 0)) / total
    },
  }
}

/** A client in this process, like the API's, and a worker in a process of its own. */
async function startBare(stack: Stack, containerIds: string[]) {
  const { address, namespace } = stack.temporal
  const writes = await connectWrites(stack.mongodbUrl)
  const containers = await writes.copy(containerIds)
  const script = fileURLToPath(new URL('bare/worker.ts', import.meta.url))
  const threads = fileURLToPath(new URL('../../worker/workflow-threads.ts', import.meta.url))
  const args = ['--import', threads, script, stack.mongodbUrl, address, namespace, bareQueue]
  const worker = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, NODE_ENV: 'production' },
  })
  await ready(worker)
  const connection = await Connection.connect({ address })
  const client = new Client({ connection, namespace })
  return {
    pid: worker.pid ?? 0,
    async change(lane: number, memoryMib: number): Promise<void> {
      const container = containers[lane]
      if (!container) throw new Error(`no container for lane ${lane}`)
      const id = await writes.accept(container, memoryMib)
      await client.workflow.execute('bareUpdate', {
        workflowId: `bench-bare-${id}`,
        taskQueue: bareQueue,
        args: [id],
      })
    },
    async stop(): Promise<void> {
      worker.kill()
      await once(worker, 'exit')
      await connection.close()
      await writes.drop()
      await writes.close()
    },
  }
}

async function ready(worker: ChildProcess): Promise<void> {
  const ended = once(worker, 'exit').then(() => {
    throw new Error('the bare worker ended')
  })
  if (worker.stdout) await Promise.race([once(worker.stdout, 'data'), ended])
  ended.catch(() => {})
}
