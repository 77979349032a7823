import { createConnection, type Socket } from 'node:net'
import { createInterface, type Interface } from 'node:readline'

/** Connects to a socket on this host. Its errors are not thrown by anybody afterwards: `close` follows each. */
export async function connectUnix(path: string): Promise<Socket> {
  const socket = createConnection(path)
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.on('error', reject)
  })
  return socket
}

/** What it says, line by line. A reader of lines throws its input's errors again, unless somebody takes them. */
export function linesOf(socket: Socket, onLine: (line: string) => void): Interface {
  const lines = createInterface({ input: socket })
  lines.on('error', () => {})
  lines.on('line', onLine)
  return lines
}
