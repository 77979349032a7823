import { once } from 'node:events'
import { connect } from 'node:net'
import { finished } from 'node:stream/promises'

/** Sends that many bytes; returns how many arrive until the other side ends. Fails if the connection breaks. */
export async function exchange(host: string, port: number, bytes: number): Promise<number> {
  const socket = connect({ host, port })
  await once(socket, 'connect')
  let read = 0
  socket.on('data', (chunk: Buffer) => {
    read += chunk.length
  })
  socket.write(Buffer.alloc(bytes))
  // Of both directions: the other side may end before all of these bytes are sent.
  await finished(socket)
  return read
}
