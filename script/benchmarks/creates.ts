import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { type Row, timed } from './measure.ts'
import type { Stack } from './stack.ts'

const run = promisify(execFile)
const rounds = 20

// The platform's limits for every container, which take the engine time to set up.
const limits =
  '--cpus 0.1 --memory 16m --memory-swap 16m --pids-limit 1024 --security-opt no-new-privileges'.split(' ')

/**
 * The time from the create request until the container runs, in turns with `docker run -d` of the same image on the
 * same engine: bare, and with the platform's limits.
 */
export async function creates(stack: Stack): Promise<Row[]> {
  const docker = (...args: string[]) => run('docker', ['-H', stack.dockerHost, ...args])
  const ours: number[] = []
  const theirs: number[] = []
  const limited: number[] = []
  for (let round = 0; round <= rounds; round++) {
    const name = `bench-create-${round}`
    let id = ''
    const platform = await timed(async () => {
      const body = { name, image: 'busybox', command: ['sleep', '3600'], cpu_cores: 0.1, memory_mib: 16 }
      const created = await stack.finish('POST', '/api/v1/containers', body)
      if (created.state !== 'succeeded') throw new Error(`create ${created.state}`)
      id = created.id
    })
    const command = ['--name', name, 'busybox', 'sleep', '3600']
    const engine = await timed(() => docker('run', '-d', '--init', ...command))
    await docker('rm', '-f', name)
    const withLimits = await timed(() => docker('run', '-d', '--init', ...limits, ...command))
    await docker('rm', '-f', name)
    await stack.finish('DELETE', `/api/v1/containers/${id}`)
    if (round === 0) continue // warm-up
    ours.push(platform)
    theirs.push(engine)
    limited.push(withLimits)
  }
  const over = (others: number[]): number[] =>
    ours.map((figure, round) => figure - (others[round] ?? Number.NaN))
  return [
    { what: 'create to running', unit: 'ms', figures: ours },
    { what: 'docker run -d', unit: 'ms', figures: theirs },
    { what: 'difference', unit: 'ms', figures: over(theirs), note: '≤ 150 at p50' },
    { what: 'docker run -d with the same limits', unit: 'ms', figures: limited },
    { what: 'difference', unit: 'ms', figures: over(limited) },
  ]
}
