import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { HttpsClient } from '../../../images/rag/https-client.ts'
import { makeSelfSigned } from '../../../lib/self-signed.ts'
import { makeFolder, type OpenStore } from './stores.ts'

/** A process of main.ts, and its client by TLS. */
export interface ServedStore extends OpenStore {
  store: HttpsClient
  url: string
  token: string
  ca: string
  /** The lines that the process has written. */
  said: string[]
  tokenFile: string
  /** The path of the socket whose callers need no token. */
  socket: string
  /** Writes the token's file and has the process read it. Resolves when it has. */
  renewToken(token: string): Promise<void>
  /** Has the process read the token's file. Resolves when it has tried. */
  rereadToken(): Promise<void>
  /** Ends the process by kill -9, and starts another one. */
  kill(): Promise<void>
  /** Ends the process by SIGTERM; its exit code. */
  stop(): Promise<number | null>
}

export async function openServer(env: Record<string, string> = {}): Promise<ServedStore> {
  const folder = await makeFolder()
  const file = (name: string): string => join(folder, name)
  const { certificate, key } = await makeSelfSigned({ name: 'localhost', years: 1 })
  let token = randomBytes(24).toString('hex')
  await writeFile(file('token'), token)
  await writeFile(file('certificate.pem'), certificate)
  await writeFile(file('key.pem'), key)
  const settings = {
    RAG_FOLDER: file('store'),
    RAG_PORT: '0',
    RAG_SOCKET: file('socket'),
    RAG_TOKEN_FILE: file('token'),
    RAG_TLS_CERT_FILE: file('certificate.pem'),
    RAG_TLS_KEY_FILE: file('key.pem'),
    ...env,
  }
  let running = await startProcess(settings)
  const clientOf = () => new HttpsClient({ url: urlOf(running), token, ca: certificate, timeoutMs: 120_000 })
  let store = clientOf()
  const startAgain = async () => {
    store.close()
    running = await startProcess(settings)
    store = clientOf()
  }
  const reread = async () => {
    const read = running.says('token and certificate')
    running.child.kill('SIGHUP')
    await read
  }
  return {
    get store() {
      return store
    },
    get url() {
      return urlOf(running)
    },
    get token() {
      return token
    },
    get said() {
      return running.said
    },
    ca: certificate,
    folder: file('store'),
    tokenFile: file('token'),
    socket: file('socket'),
    async renewToken(other) {
      await writeFile(file('token'), other)
      token = other
      await reread()
      store.close()
      store = clientOf()
    },
    rereadToken: reread,
    async kill() {
      await endOf(running.child, 'SIGKILL')
      await startAgain()
    },
    async again() {
      await endOf(running.child, 'SIGTERM')
      await startAgain()
    },
    stop: () => endOf(running.child, 'SIGTERM'),
    async close() {
      store.close()
      await endOf(running.child, 'SIGKILL')
      await rm(folder, { recursive: true })
    },
  }
}

interface Running {
  child: ChildProcess
  port: number
  said: string[]
  /** Resolves with the next line that has the words. */
  says(words: string): Promise<string>
}

const urlOf = ({ port }: Running): string => `https://localhost:${port}`

/** Starts main.ts with these settings alone. Rejects with what it wrote, if it ends. */
export async function startProcess(env: Record<string, string>): Promise<Running> {
  const program = resolve(import.meta.dirname, '../../../images/rag/main.ts')
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', program], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const said: string[] = []
  let listeners: { words: string; resolve: (line: string) => void }[] = []
  for (const stream of [child.stdout, child.stderr])
    createInterface(stream).on('line', (line) => {
      said.push(line)
      for (const { resolve: goOn } of listeners.filter(({ words }) => line.includes(words))) goOn(line)
      listeners = listeners.filter(({ words }) => !line.includes(words))
    })
  const says = (words: string) => new Promise<string>((goOn) => listeners.push({ words, resolve: goOn }))
  const ended = once(child, 'close').then(([code]) => {
    throw new Error(`the store ended with ${String(code)}: ${said.join('\n')}`)
  })
  ended.catch(() => {}) // after the start, the test that ends it expects this
  const line = await Promise.race([says('"listening"'), ended])
  return { child, port: (JSON.parse(line) as { port: number }).port, said, says }
}

async function endOf(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode
  const closed = once(child, 'close')
  child.kill(signal)
  const [code] = (await closed) as [number | null]
  return code
}
