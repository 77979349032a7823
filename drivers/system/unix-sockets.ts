import { createConnection, type Socket } from 'node:net'

/** Connects to a socket on this host. Its errors are not thrown by anybody afterwards: `close` follows each. */
export async function connectUnix(path: string): Promise<Socket> {
  const socket = createConnection(path)
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.on('error', reject)
  })
  return socket
}

// QEMU's longest answers are some kilobytes.
const longestBytes = 16 * 1024 ** 2

/** What it says, line by line. Of a longer line nothing is taken and nothing is kept: who writes it may be a tenant. */
export function linesOf(socket: Socket, onLine: (line: string) => void, mostBytes = longestBytes): void {
  let parts: Buffer[] = []
  let bytes = 0
  const add = (part: Buffer): void => {
    bytes += part.length
    if (bytes <= mostBytes) parts.push(part)
    else parts = []
  }
  socket.on('data', (data: Buffer) => {
    let from = 0
    for (let end = data.indexOf(0x0a); end >= 0; end = data.indexOf(0x0a, from)) {
      add(data.subarray(from, end))
      from = end + 1
      const line = bytes <= mostBytes ? Buffer.concat(parts).toString() : null
      parts = []
      bytes = 0
      if (line !== null) onLine(line)
    }
    if (from < data.length) add(data.subarray(from))
  })
}

const paceMs = 100

/** Reads no more than this, on average: who writes may be a tenant, and what is read costs time that all tenants share. */
export function pace(socket: Socket, bytesPerSec: number): void {
  let begun = performance.now()
  let bytes = 0
  socket.on('data', (data: Buffer) => {
    const passed = performance.now() - begun
    if (passed > paceMs) {
      begun += passed
      bytes = 0
    }
    bytes += data.length
    const neededMs = (bytes / bytesPerSec) * 1000
    if (neededMs < paceMs) return
    socket.pause()
    setTimeout(() => socket.resume(), neededMs)
  })
}
