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

/** Resolves when it listens, on the given port or a free one. */
export async function startOwnApi(settings: Record<string, string>, given?: number): Promise<OwnApi> {
  const port = given ?? (await freePort())
  const url = `http://127.0.0.1:${port}`
  const env = { ...stackSettings(), KEELSON_API_PORT: String(port), KEELSON_METRICS_PORT: '0', ...settings }
  const api: ChildProcess = spawn(process.execPath, ['api/main.ts'], {
    env,
    cwd: layout.repository,
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  let log = ''
  api.stdout?.on('data', (chunk: Buffer) => (log += chunk.toString()))
  await eventually(() => accepts(port))
  return {
    url,
    log: () => log,
    async stop() {
      api.kill('SIGTERM')
      if (api.exitCode === null) await once(api, 'exit')
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
