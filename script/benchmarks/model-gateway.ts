import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import http from 'node:http'
import { connect } from 'node:net'
import { fileURLToPath } from 'node:url'
import { newId } from '../../lib/ids.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { Tenant } from '../../models/identity/tenants.ts'
import { issueToken } from '../../models/llm/tokens.ts'
import { type Row, median, quantile, timed } from './measure.ts'
import { insertConnector } from './models/connector.ts'
import { pieceEveryMs, pieces } from './models/servers.ts'
import { cpuMs, type Stack } from './stack.ts'

const rounds = 5
const callsPerRound = 200
const streamsAtOnce = 500
const repository = fileURLToPath(new URL('../..', import.meta.url))
const servers = 'script/benchmarks/models/servers.ts'

/**
 * A call that a scripted provider answers at once, one at a time: directly, through a reverse proxy that only passes bytes
 * on, and through the model gateway, in turns. Then streams at once through either, each held to one core.
 */
export async function modelGateway(stack: Stack, portBase: number): Promise<Row[]> {
  const [provider, proxy, gateway] = [portBase, portBase + 1, portBase + 2]
  const started: ChildProcess[] = []
  const start = async (port: number, program: string[], env: Record<string, string> = {}, core?: string) => {
    const command =
      core === undefined ? [process.execPath] : ['taskset', '--cpu-list', core, process.execPath]
    const [name = '', ...args] = [...command, ...program]
    const child = spawn(name, args, {
      cwd: repository,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'inherit'],
    })
    started.push(child)
    while (!(await listens(port))) if (child.exitCode !== null) throw new Error(`${program[0]} has ended`)
    return child.pid ?? 0
  }
  const database = {
    KEELSON_MONGODB_URL: stack.mongodbUrl,
    KEELSON_MASTER_KEY_FILE: stack.masterKeyFile,
  }
  await connectDatabase(database)
  try {
    await start(provider, [servers, 'provider', `${provider}`])
    const pids = {
      proxy: await start(proxy, [servers, 'proxy', `${proxy}`, url(provider)], {}, '0'),
      gateway: await start(
        gateway,
        ['gateway/models/main.ts'],
        {
          ...database,
          KEELSON_MODELS_PORT: String(gateway),
          KEELSON_METRICS_PORT: '0',
          KEELSON_MODELS_PER_CONNECTOR: '10000',
          KEELSON_OUTBOUND_ALLOWED: `127.0.0.1:${provider}`,
          NODE_ENV: 'production',
        },
        '0',
      ),
    }
    const token = await makeToken(`${url(provider)}/v1`)
    const ways = { direct: provider, proxy, gateway }
    const p50 = { direct: [] as number[], proxy: [] as number[], gateway: [] as number[] }
    for (const port of Object.values(ways)) for (let i = 0; i < 100; i++) await call(port, token, false)
    for (let round = 0; round < rounds; round++)
      for (const [way, port] of Object.entries(ways)) {
        const times: number[] = []
        for (let i = 0; i < callsPerRound; i++) times.push(await timed(() => call(port, token, false)))
        p50[way as keyof typeof ways].push(median(times))
      }
    const added = (way: 'proxy' | 'gateway') => p50[way].map((ms, round) => ms - (p50.direct[round] ?? 0))
    return [
      { what: 'a call to a provider, directly', unit: 'ms p50', figures: p50.direct },
      { what: 'what a bare reverse proxy adds to it', unit: 'ms p50', figures: added('proxy') },
      {
        what: 'what the model gateway adds to it',
        unit: 'ms p50',
        figures: added('gateway'),
        note: 'goal: 3',
      },
      ...(await streams('a bare reverse proxy', proxy, pids.proxy, token)),
      ...(await streams('the model gateway', gateway, pids.gateway, token)),
    ]
  } finally {
    for (const child of started) {
      child.kill('SIGTERM')
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    }
    await disconnectDatabase()
  }
}

async function streams(by: string, port: number, pid: number, token: string): Promise<Row[]> {
  const late: number[] = []
  const cores: number[] = []
  for (let round = 0; round < rounds; round++) {
    const before = cpuMs({ pid })['pid'] ?? 0
    const began = performance.now()
    const lengths = await Promise.all(
      Array.from({ length: streamsAtOnce }, () => timed(() => call(port, token, true))),
    )
    cores.push(((cpuMs({ pid })['pid'] ?? 0) - before) / (performance.now() - began))
    late.push(quantile(lengths, 0.99) - pieces * pieceEveryMs)
  }
  const what = `${streamsAtOnce} streams at once through ${by} on one core`
  return [
    {
      what: `${what}: lateness of the slowest in a hundred, after ${(pieces * pieceEveryMs) / 1000} s`,
      unit: 'ms',
      figures: late,
    },
    { what: `${what}: used`, unit: 'cores', figures: cores },
  ]
}

async function makeToken(base_url: string): Promise<string> {
  const tenant = await new Tenant({
    name: `bench-${newId()}`,
    limits: { max_llm_tokens_month: Number.MAX_SAFE_INTEGER },
  }).save()
  const connector_id = await insertConnector(tenant._id, base_url)
  const purpose = { kind: 'session', id: newId() } as const
  const grant = { tenant_id: tenant._id, purpose, connector_id, fallbacks: [] }
  return (await issueToken(grant, null, 3_600)).token
}

const url = (port: number): string => `http://127.0.0.1:${port}`
const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity })
const body = (stream: boolean): string =>
  JSON.stringify({
    model: 'gpt-4o',
    max_tokens: 200,
    messages: [{ role: 'user', content: 'word '.repeat(400) }],
    ...(stream ? { stream, stream_options: { include_usage: true } } : {}),
  })

const call = (port: number, token: string, stream: boolean): Promise<void> =>
  new Promise((resolve, reject) => {
    const asking = http.request(
      `http://127.0.0.1:${port}/v1/chat/completions`,
      {
        agent,
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      },
      (answer) => {
        answer.resume().once('error', reject)
        answer.once('end', () => {
          if (answer.statusCode === 200) resolve()
          else reject(new Error(`port ${port} answers ${answer.statusCode}`))
        })
      },
    )
    asking.once('error', reject)
    asking.end(body(stream))
  })

const listens = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => resolve(true)).once('error', () => setTimeout(resolve, 50, false))
    socket.once('connect', () => socket.destroy())
  })
