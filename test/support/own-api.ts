import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { eventually } from './eventually.ts'
import { layout, stackSettings } from './stack.ts'

/** An API process with its own settings, on the stack's database. */
export interface OwnApi {
  url: string
  /** Its log so far. */
  log(): string
  stop(): Promise<void>
}

/** A free port may be taken before the API listens. */
const triesToListen = 5

/** Resolves when it listens, on the given port or a free one. */
export async function startOwnApi(settings: Record<string, string>, given?: number): Promise<OwnApi> {
  let log = ''
  for (let tries = given === undefined ? triesToListen : 1; tries > 0; tries--) {
    const api = await startAt(given ?? (await freePort()), settings)
    if (!api.hasEnded()) return api
    log = api.log()
  }
  throw new Error(`the API ended: ${log}`)
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
  await eventually(async () => hasEnded() || (await accepts(port)))
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

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** Whether a server listens at this address, seen from this machine. */
export const accepts = (port: number, address = '127.0.0.1'): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, address)
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    socket.once('connect', () => socket.destroy())
  })
