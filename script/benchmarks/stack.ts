import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import http from 'node:http'
import { join } from 'node:path'
import { text as readText } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const run = promisify(execFile)
const repository = fileURLToPath(new URL('../..', import.meta.url))
const server = join(repository, 'script/server')

/** The API as one user calls it. */
export interface As {
  request<T>(
    method: string,
    path: string,
    body?: unknown,
  ): Promise<{ status: number; headers: http.IncomingHttpHeaders; body: T }>
  /** Sends a request that is answered with 202, and waits for the operation's end. */
  finish(method: string, path: string, body?: unknown): Promise<{ id: string; state: string }>
}

/** The measured platform: separate from any other that runs here. Its own calls are the first owner's. */
export interface Stack extends As {
  api: string
  headers: Record<string, string>
  dockerHost: string
  mongodbUrl: string
  masterKeyFile: string
  temporal: { address: string; namespace: string }
  /** Stops, starts or kills one role. */
  role(verb: 'stop' | 'start' | 'kill', name: string): Promise<void>
  /** Process ids by role. */
  pids(): Promise<Record<string, number>>
  /** The calls of the user with this session. */
  as(token: string): As
  /** The token of another session of the first owner. */
  login(): Promise<string>
  stop(): Promise<void>
}

/** What stands in for the public images of databases (test/support/database-images.ts). */
const databaseImages = Object.fromEntries(
  ['postgresql', 'mariadb', 'redis', 'mongodb', 'clickhouse'].map((type) => [
    `KEELSON_DATABASE_${type.toUpperCase()}_IMAGE`,
    `keelson/test-${type}`,
  ]),
)

// /proc counts CPU time in ticks: 100 a second on every Linux that Node runs on (man 5 proc).
const tickMs = 10

/** The CPU time of each process, user and system. */
export const cpuMs = (pids: Record<string, number>): Record<string, number> =>
  Object.fromEntries(
    Object.entries(pids).map(([role, pid]) => {
      const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
      return [role, (Number(fields[11]) + Number(fields[12])) * tickMs]
    }),
  )

/** Resident memory of a process. */
export function rssMib(pid: number): number {
  const [, kib] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kib) / 1024
}

/** Whether an operation has ended, with any result. */
export const isEnded = ({ state }: { state: string }): boolean => state !== 'pending' && state !== 'running'

/**
 * Starts the platform with room for a thousand containers, and without rate limits. Calls of its own may reach these ports of
 * this machine.
 */
export async function startStack(portBase: number, providers: number[]): Promise<Stack> {
  const root = process.env['KEELSON_STATE'] ?? join(repository, '.state')
  const state = join(root, 'bench')
  const env = {
    ...process.env,
    KEELSON_TOOLS: process.env['KEELSON_TOOLS'] ?? join(root, 'tools'),
    KEELSON_STATE: state,
    KEELSON_PORT_BASE: String(portBase),
    KEELSON_RATE_PER_SEC: '1000000',
    KEELSON_OPEN_PER_TENANT: '100000',
    KEELSON_OUTBOUND_ALLOWED: providers.map((port) => `127.0.0.1:${port}`).join(','),
    KEELSON_HOST_CPU_CORES: '1000',
    KEELSON_HOST_MEMORY_MIB: '1000000',
    ...databaseImages,
  }
  const ask = (...args: string[]) => run(server, args, { env, maxBuffer: 1 << 24 })
  let stopped: Promise<unknown> | undefined
  const stop = async () => void (await (stopped ??= ask('destroy', '--yes')))
  // An interrupted run leaves no platform, unless it is killed.
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => {
      process.on('uncaughtException', () => {}) // what is being measured fails
      void stop().finally(() => {
        for (const pid of childrenOf(process.pid)) process.kill(pid) // such as what the platform is compared with
        process.exit(1)
      })
    })
  await ask('destroy', '--yes')
  await ask('--detach')
  return { ...(await stackAt(state, ask)), stop }
}

const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number)

/** The platform that runs on this state folder. `ask` runs script/server with these arguments. */
export async function stackAt(
  state: string,
  ask: (...args: string[]) => Promise<{ stdout: string }>,
): Promise<Stack> {
  const facts = JSON.parse(readFileSync(join(state, 'server.json'), 'utf8')) as Record<string, string>
  const api = facts['api_url'] ?? ''
  const login = async () => {
    const answer = await fetch(`${api}/api/v1/auth/login`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: readFileSync(join(state, 'owner.json')),
    })
    return ((await answer.json()) as { token: string }).token
  }
  const token = await login()
  const headers = { authorization: `Bearer ${token}` }

  const as = (of: string): As => callsBy(api, of)
  return {
    api,
    headers,
    dockerHost: facts['docker_host'] ?? '',
    mongodbUrl: readFileSync(join(state, 'mongodb.url'), 'utf8').trim(),
    masterKeyFile: join(state, 'master.key'),
    temporal: { address: facts['temporal_address'] ?? '', namespace: facts['temporal_namespace'] ?? '' },
    role: async (verb, name) => void (await ask(verb, name)),
    pids: async () => {
      const { stdout } = await ask('status')
      const found = stdout.matchAll(/'([\w-]+)'\s*│\s*(\d+)/g)
      return Object.fromEntries(
        [...found].map(([, name, pid]) => [name, Number(pid)]).filter(([, pid]) => pid),
      )
    },
    as,
    login,
    ...as(token),
    stop: async () => void (await ask('destroy', '--yes')),
  }
}

function callsBy(api: string, token: string): As {
  // Not `fetch`, which costs some 2 ms of CPU time that the measured processes share.
  const agent = new http.Agent({ keepAlive: true })
  const request: As['request'] = async <T>(method: string, path: string, body?: unknown) => {
    const text = body === undefined ? null : JSON.stringify(body)
    const asking = http.request(api + path, {
      method,
      agent,
      headers: {
        authorization: `Bearer ${token}`,
        ...(text ? { 'content-type': 'application/json' } : {}),
      },
    })
    asking.end(text)
    const [answer] = (await once(asking, 'response')) as [http.IncomingMessage]
    const said = await readText(answer)
    return {
      status: answer.statusCode ?? 0,
      headers: answer.headers,
      body: (said ? JSON.parse(said) : null) as T,
    }
  }
  return {
    request,
    async finish(method, path, body) {
      const accepted = await request<{ id: string; detail?: string }>(method, path, body)
      if (accepted.status !== 202)
        throw new Error(`${method} ${path}: ${accepted.status} ${accepted.body.detail}`)
      const location = String(accepted.headers['operation-location'])
      for (;;) {
        const { body: operation } = await request<{ state: string }>('GET', `${location}?wait=60`)
        if (isEnded(operation)) return { id: accepted.body.id, state: operation.state }
      }
    },
  }
}
