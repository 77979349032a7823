import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import autocannon from 'autocannon'
import { hashKey } from '../../models/data-keys.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import type { Row } from './measure.ts'
import type { Stack } from './stack.ts'

const rounds = 5
const roundSec = 5
const connections = 10
const sleeping = { image: 'busybox', command: ['sleep', '3600'], cpu_cores: 0.1, memory_mib: 16 }

/**
 * `GET /containers/{id}`, in turns with a minimal server that makes the same checks. Each connection has a session and a container of
 * its own, since the API reads what several ask for at once only once.
 */
export async function reads(stack: Stack, port: number): Promise<Row[]> {
  const asked = await Promise.all(
    Array.from({ length: connections }, async (_, at) => {
      const name = `bench-reads-${at}`
      const { id } = await stack.finish('POST', '/api/v1/containers', { ...sleeping, name })
      const headers = { authorization: `Bearer ${await stack.login()}` }
      return { method: 'GET' as const, path: `/api/v1/containers/${id}`, headers }
    }),
  )
  const baseline = await startBaseline(stack, port)
  const ours = { perSec: [] as number[], p50: [] as number[], p99: [] as number[] }
  const theirs = { perSec: [] as number[], p50: [] as number[], p99: [] as number[] }
  try {
    for (let round = 0; round <= rounds; round++) {
      for (const [url, into] of [
        [stack.api, ours],
        [`http://127.0.0.1:${port}`, theirs],
      ] as const) {
        let clients = 0
        const setupClient = (client: autocannon.Client): void =>
          client.setRequests([{ ...asked[clients++ % connections] }])
        const result = await autocannon({ url, setupClient, connections, duration: roundSec })
        if (result.non2xx) throw new Error(`${result.non2xx} answers of ${url} were no 200`)
        if (round === 0) continue // warm-up
        into.perSec.push(result.requests.average)
        into.p50.push(result.latency.p50)
        into.p99.push(result.latency.p99)
      }
    }
  } finally {
    baseline.kill()
    await Promise.all(asked.map(({ path }) => stack.finish('DELETE', path)))
  }
  const ratios = ours.perSec.map((figure, round) => figure / (theirs.perSec[round] ?? Number.NaN))
  return [
    { what: 'GET /containers/{id}', unit: 'requests/s', figures: ours.perSec },
    { what: 'the same, minimal application', unit: 'requests/s', figures: theirs.perSec },
    { what: 'ratio', unit: '', figures: ratios, note: '≥ 0.8' },
    { what: 'GET /containers/{id}, p50', unit: 'ms', figures: ours.p50 },
    { what: 'the same, minimal application, p50', unit: 'ms', figures: theirs.p50 },
    { what: 'GET /containers/{id}, p99', unit: 'ms', figures: ours.p99 },
    { what: 'the same, minimal application, p99', unit: 'ms', figures: theirs.p99 },
  ]
}

async function startBaseline(stack: Stack, port: number): Promise<ChildProcess> {
  const script = fileURLToPath(new URL('baseline.ts', import.meta.url))
  // Like the platform's roles: libraries behave differently without NODE_ENV=production.
  const env = { ...process.env, NODE_ENV: 'production', HASH_KEY: await readHashKey(stack) }
  const child = spawn(process.execPath, [script, stack.mongodbUrl, String(port)], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env,
  })
  await once(child.stdout, 'data')
  return child
}

async function readHashKey({ mongodbUrl, masterKeyFile }: Stack): Promise<string> {
  await connectDatabase({ KEELSON_MONGODB_URL: mongodbUrl, KEELSON_MASTER_KEY_FILE: masterKeyFile })
  try {
    return hashKey().export().toString('base64')
  } finally {
    await disconnectDatabase()
  }
}
