import { connect } from 'node:net'

/** Sends so many bytes, and returns how many come until the other side ends. Fails when the connection breaks off. */
export async function exchange(host: string, port: number, bytes: number): Promise<number> {
  const socket = connect({ host, port })
  socket.write(Buffer.alloc(bytes))
  let read = 0
  for await (const chunk of socket) read += (chunk as Buffer).length
  return read
}
