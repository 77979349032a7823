import { connect } from 'node:net'

/** Sends that many bytes; returns how many arrive until the other side ends. Fails if the connection breaks. */
export async function exchange(host: string, port: number, bytes: number): Promise<number> {
  const socket = connect({ host, port })
  socket.write(Buffer.alloc(bytes))
  let read = 0
  for await (const chunk of socket) read += (chunk as Buffer).length
  return read
}
