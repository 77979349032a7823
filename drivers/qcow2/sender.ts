import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { pipeline } from 'node:stream/promises'
import { createServer, type TLSSocket } from 'node:tls'
import { framesOf } from './frames.ts'

// A program of its own, since it outlives the host's worker: lets who has the key read the files of one disk. On each
// connection it is asked for one by its name, a line, and answers with the file as frames.

/** Its one argument, as JSON. */
export interface Sending {
  address: string
  port: number
  /** Of the key, in hexadecimal; not an argument, which everybody on the machine could read. */
  keyFile: string
  /** Written once it listens. */
  pidFile: string
  files: Record<string, string>
}

/** The exit code when the port is another's. */
export const portTaken = 98

/**
 * The key is for one transfer only, and so is all that is encrypted with what follows from it. TLS 1.2, since Node takes
 * keys known to both sides for no other; one with Diffie-Hellman, so that the key alone does not open a recording.
 */
export const tlsOptions = { ciphers: 'DHE-PSK-AES128-GCM-SHA256', maxVersion: 'TLSv1.2' } as const

export const identity = 'keelson'

const nameLimit = 100

async function nameAskedFor(socket: TLSSocket): Promise<string> {
  let text = ''
  while (!text.includes('\n') && text.length < nameLimit) text += String((await once(socket, 'data'))[0])
  return text.split('\n')[0] ?? ''
}

async function send(socket: TLSSocket, files: Sending['files']): Promise<void> {
  socket.setNoDelay(true)
  const name = await nameAskedFor(socket)
  const file = Object.hasOwn(files, name) ? files[name] : undefined
  if (file === undefined) return
  await pipeline(framesOf(file), socket)
}

async function main({ address, port, keyFile, pidFile, files }: Sending): Promise<void> {
  const key = Buffer.from(await readFile(keyFile, 'utf8'), 'hex')
  const server = createServer({ ...tlsOptions, dhparam: 'auto', pskCallback: () => key }, (socket) => {
    // Who asked sees that it ended too soon, and says so.
    socket.on('error', () => {})
    send(socket, files)
      .catch(() => {})
      .finally(() => socket.destroy())
  })
  server.on('error', () => process.exit(portTaken))
  server.listen(port, address)
  await once(server, 'listening')
  await writeFile(pidFile, `${process.pid}\n`)
}

if (import.meta.main) await main(JSON.parse(process.argv[2] ?? '') as Sending)
