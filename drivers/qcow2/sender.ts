import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { pipeline } from 'node:stream/promises'
import { createServer, type TLSSocket } from 'node:tls'
import { framesOf } from './frames.ts'

// A separate program, because it outlives the host worker: lets the holder of the key read the files of one disk. A
// client sends a file's name in one line and receives the file as frames.

/** The only argument, as JSON. */
export interface Sending {
  address: string
  port: number
  /** File with the key, in hexadecimal. Not an argument: every user of the machine could read it. */
  keyFile: string
  /** Written when it listens. */
  pidFile: string
  files: Record<string, string>
}

/** The exit code if the port is taken. */
export const portTaken = 98

/**
 * The key is for one transfer only. TLS 1.2, because Node supports pre-shared keys only there; with Diffie-Hellman, so
 * that the key alone cannot decrypt a recording.
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
    // The client notices the early end and reports it.
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
