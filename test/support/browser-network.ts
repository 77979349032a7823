import { chmod, writeFile } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { join, resolve } from 'node:path'
import { pipeline } from 'node:stream'

// A browser in a network namespace of its own. Chromium breaks off all its requests when the machine gets or loses a network
// address (ERR_NETWORK_CHANGED), as it does with each container of the tests beside it.

/** One connection of SOCKS 5 (RFC 1928), without authentication, to an IPv4 address or a name. */
async function serve(client: Socket): Promise<void> {
  const read = async (length: number): Promise<Buffer> => {
    for (;;) {
      const bytes = client.read(length) as Buffer | null
      if (bytes) return bytes
      await new Promise((go) => client.once('readable', go))
    }
  }
  const [, methods = 0] = await read(2)
  await read(methods)
  client.write(Buffer.from([5, 0]))
  const [, , , kind] = await read(4)
  const host = kind === 1 ? [...(await read(4))].join('.') : (await read((await read(1))[0] ?? 0)).toString()
  const port = (await read(2)).readUInt16BE()
  const server = connect(port, host)
  const answer = (code: number) => client.write(Buffer.from([5, code, 0, 1, 0, 0, 0, 0, 0, 0]))
  server.once('connect', () => {
    answer(0)
    pipeline(client, server, () => {})
    pipeline(server, client, () => {})
  })
  server.once('error', () => {
    answer(5)
    client.end()
  })
}

/** Makes a program, in a folder, that starts the browser at `chromium` in a network namespace of its own. */
export async function programOf(chromium: string, folder: string) {
  const [socket, path] = [join(folder, 'network'), join(folder, 'browser')]
  const server = createServer((client) => {
    client.on('error', () => {})
    void serve(client)
  })
  await new Promise<void>((listening) => server.listen(socket, listening))
  const inside = resolve(import.meta.dirname, 'browser-inside.ts')
  const words = ['unshare', '--net', process.execPath, inside, socket, chromium]
  await writeFile(path, `#!/bin/sh\nexec ${words.map((word) => `'${word}'`).join(' ')} "$@"\n`)
  await chmod(path, 0o755)
  return { path, close: () => server.close() }
}
