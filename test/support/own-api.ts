import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { eventually } from './eventually.ts'
import { freePort } from '../../script/lib/free-port.ts'
import { layout, stackSettings } from './stack.ts'

/** An API process with its own settings, on the stack's database. */
export interface OwnApi {
  url: string
  /** Its log so far. */
  log(): string
  stop(): Promise<void>
}

interface Role {
  hasEnded(): boolean
  log(): string
}

const triesToListen = 5

/** Starts a role on a free port, and on another one if that is taken before the role listens. */
export async function onFreePort<R extends Role>(start: (port: number) => Promise<R>): Promise<R> {
  let log = ''
  for (let tries = 0; tries < triesToListen; tries++) {
    const role = await start(await freePort())
    if (!role.hasEnded()) return role
    log = role.log()
  }
  throw new Error(`it ended: ${log}`)
}

/** Resolves when it listens, on the given port or a free one. */
export async function startOwnApi(settings: Record<string, string>, given?: number): Promise<OwnApi> {
  if (given === undefined) return onFreePort((port) => startAt(port, settings))
  const api = await startAt(given, settings)
  if (api.hasEnded()) throw new Error(`the API ended: ${api.log()}`)
  return api
}

/** Resolves when it listens, or has ended. */
async function startAt(port: number, settings: Record<string, string>) {
  const url = `http://127.0.0.1:${port}`
  const env = { ...stackSettings(), KEELSON_API_PORT: String(port), KEELSON_METRICS_PORT: '0', ...settings }
  const api: ChildProcess = spawn(process.execPath, ['api/main.ts'], {
    env,
    cwd: layout.repository,
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  let log = ''
  api.stdout?.on('data', (chunk: Buffer) => (log += chunk.toString()))
  const hasEnded = () => api.exitCode !== null || api.signalCode !== null
  await eventually(() => hasEnded() || isReady(log))
  return {
    url,
    hasEnded,
    log: () => log,
    async stop() {
      api.kill('SIGTERM')
      if (!hasEnded()) await once(api, 'exit')
    },
  }
}

/** Of a role that says so in its log: that its port answers is no proof, since another server may have taken it. */
export const isReady = (log: string): boolean => log.includes('"msg":"ready"')

/** Whether a server listens at this address, seen from this machine. */
export const accepts = (port: number, address = '127.0.0.1'): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, address)
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    socket.once('connect', () => socket.destroy())
  })
