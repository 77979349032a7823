import { createConnection, type Socket } from 'node:net'

/** Connects to a socket on this host. Later errors are swallowed; `close` follows each. */
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

/** Calls back for each line. Discards a longer line without buffering it: a tenant may have written it. */
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

/**
 * Limits the average reading rate: a tenant may be the writer, and reading costs CPU that all tenants share. `costOf`: how
 * many bytes a piece counts for.
 */
export function pace(
  socket: Socket,
  bytesPerSec: number,
  costOf: (data: Buffer) => number = (data) => data.length,
): void {
  let begun = performance.now()
  let bytes = 0
  socket.on('data', (data: Buffer) => {
    const passed = performance.now() - begun
    if (passed > paceMs) {
      begun += passed
      bytes = 0
    }
    bytes += costOf(data)
    const neededMs = (bytes / bytesPerSec) * 1000
    if (neededMs < paceMs) return
    socket.pause()
    setTimeout(() => socket.resume(), neededMs)
  })
}
