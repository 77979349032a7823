import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from './eventually.ts'
import { layout } from './stack.ts'

// Versity's S3 gateway, a server that checks signatures, with its buckets in a folder.

const program = join(process.env['KEELSON_TOOLS'] ?? join(layout.state, 'tools'), 'versitygw/bin/versitygw')
/** Whether script/bootstrap --tests could build it on this machine. */
export const hasS3Server = existsSync(program)

const accessKeyId = 'keelson-tests'
const secretAccessKey = 'a secret of the tests'.replaceAll(' ', '-')

/** A server at this port of 127.0.0.1. */
export async function openS3Server(port: number) {
  const folder = await mkdtemp(join(tmpdir(), 'versitygw-'))
  const root = join(folder, 'buckets')
  await mkdir(root)
  const access = ['--access', accessKeyId, '--secret', secretAccessKey]
  const args = ['--port', `127.0.0.1:${port}`, ...access, '--virtual-domain', `s3.test:${port}`, '--quiet']
  let running: ChildProcess | null = null

  const server = {
    endpoint: `http://127.0.0.1:${port}`,
    access: { access_key_id: accessKeyId, secret_access_key: secretAccessKey },
    async start(): Promise<void> {
      running = spawn(program, [...args, 'posix', '--nometa', root], { stdio: 'ignore' })
      await eventually(() => answers(port))
    },
    async stop(): Promise<void> {
      running?.kill('SIGKILL')
      if (running && running.exitCode === null && running.signalCode === null) await once(running, 'exit')
      running = null
    },
    makeBucket: (name: string) => mkdir(join(root, name)),
    removeBucket: (name: string) => rm(join(root, name), { recursive: true }),
    /** The keys of the objects that begin so. */
    async keys(bucket: string, prefix = ''): Promise<string[]> {
      const found = await readdir(join(root, bucket), { recursive: true, withFileTypes: true })
      const files = found
        .filter((entry) => entry.isFile())
        .map(({ parentPath, name }) => join(parentPath, name))
      const keys = files.map((path) => path.slice(join(root, bucket).length + 1))
      return keys.filter((key) => key.startsWith(prefix)).toSorted()
    },
    read: (bucket: string, key: string) => readFile(join(root, bucket, key)),
    remove: (bucket: string, key: string) => rm(join(root, bucket, key)),
    /** Changes one byte in the middle of an object. */
    async spoil(bucket: string, key: string): Promise<void> {
      const bytes = await readFile(join(root, bucket, key))
      const at = Math.floor(bytes.length / 2)
      bytes[at] = (bytes[at] ?? 0) ^ 1
      await writeFile(join(root, bucket, key), bytes)
    },
    async close(): Promise<void> {
      await server.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
  await server.start()
  return server
}
export type S3Server = Awaited<ReturnType<typeof openS3Server>>

const answers = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    socket.once('close', () => socket.destroy())
    socket.once('connect', () => socket.destroy())
  })
