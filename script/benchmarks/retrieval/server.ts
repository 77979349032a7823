import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { HttpsClient } from '../../../images/rag/https-client.ts'
import { makeSelfSigned } from '../../../lib/self-signed.ts'
import { timed } from '../measure.ts'

/** The store as it runs in its container: a process of its own, reached by TLS. */
export interface BenchServer {
  client: HttpsClient
  pid: number
  /** Ends the process and starts it again. The milliseconds until it has loaded its collections. */
  restart(): Promise<number>
  stop(): Promise<void>
}

const withinMs = 600_000

export async function startBenchServer(): Promise<BenchServer> {
  const folder = await mkdtemp(join(tmpdir(), 'keelson-bench-rag-'))
  const { certificate, key } = await makeSelfSigned({ name: 'localhost', years: 1 })
  const token = randomBytes(24).toString('hex')
  const env: Record<string, string> = { RAG_FOLDER: join(folder, 'store'), RAG_PORT: '0' }
  const files = { RAG_TOKEN_FILE: token, RAG_TLS_CERT_FILE: certificate, RAG_TLS_KEY_FILE: key }
  for (const [name, content] of Object.entries(files)) {
    env[name] = join(folder, name)
    await writeFile(env[name], content)
  }
  let child = start(env)
  let client = await clientOf(child)

  async function clientOf({ port }: ReturnType<typeof start>): Promise<HttpsClient> {
    return new HttpsClient({
      url: `https://localhost:${await port}`,
      token,
      ca: certificate,
      timeoutMs: withinMs,
    })
  }
  const end = async (): Promise<void> => {
    client.close()
    const ended = once(child.process, 'exit')
    child.process.kill()
    await ended
  }
  return {
    get client() {
      return client
    },
    get pid() {
      return child.process.pid ?? 0
    },
    async restart() {
      await end()
      return timed(async () => {
        child = start(env)
        client = await clientOf(child)
        await child.ready
      })
    },
    async stop() {
      await end()
      await rm(folder, { recursive: true })
    },
  }
}

function start(env: Record<string, string>) {
  const program = resolve(import.meta.dirname, '../../../images/rag/main.ts')
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', program], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const lines = createInterface(child.stdout)
  const says = (words: string) =>
    new Promise<string>((resolveLine) =>
      lines.on('line', (line) => {
        if (line.includes(words)) resolveLine(line)
      }),
    )
  const port = says('"listening"').then((line) => (JSON.parse(line) as { port: number }).port)
  return { process: child, port, ready: says('"ready"') }
}
