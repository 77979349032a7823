import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/**
 * A TCP proxy that can fall silent, as a network that drops packets: no connection closes, and nothing arrives. What was sent
 * meanwhile arrives when it passes bytes again, as TCP repeats it.
 */
export interface SilentProxy {
  port: number
  silence(): void
  /** Falls silent after so many more pieces from the client. Resolves then. */
  silenceAfter(pieces: number): Promise<void>
  pass(): void
  close(): Promise<void>
}

/** `behind` is a port of 127.0.0.1, or an address with a port. `port`: where it listens; by default a free one. */
export async function openSilentProxy(
  behind: number | { host: string; port: number },
  port = 0,
): Promise<SilentProxy> {
  const target = typeof behind === 'number' ? { host: '127.0.0.1', port: behind } : behind
  const sockets = new Set<Socket>()
  let isSilent = false
  let left = Infinity
  let fell = Promise.withResolvers<void>()

  const silence = (): void => {
    isSilent = true
    left = Infinity
    for (const socket of sockets) socket.pause()
    fell.resolve()
  }
  const joined = (from: Socket, to: Socket, count: () => void): void => {
    sockets.add(from)
    if (isSilent) from.pause()
    from.on('data', (data) => {
      to.write(data)
      count()
    })
    from.on('end', () => to.end()).on('error', () => to.destroy())
    from.on('close', () => sockets.delete(from))
  }
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect({ ...target, allowHalfOpen: true })
    joined(client, upstream, () => {
      if (--left <= 0) silence()
    })
    joined(upstream, client, () => {})
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    silence,
    silenceAfter(pieces) {
      left = pieces
      fell = Promise.withResolvers<void>()
      return fell.promise
    },
    pass() {
      isSilent = false
      left = Infinity
      for (const socket of sockets) socket.resume()
    },
    async close() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}
