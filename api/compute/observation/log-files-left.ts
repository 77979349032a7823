import type { Readable } from 'node:stream'
import { LogFileHeader } from '../../../lib/host-protocol.ts'
import { NotFound, Unavailable } from '../../../lib/problem.ts'
import { askHost } from './data-plane.ts'

/** A file as it was when its host was asked. Read its bytes before you ask for the next file. */
export interface FileLeft extends LogFileHeader {
  content: AsyncIterable<Buffer>
}

/** The files of an instance's output on a host, oldest first. Throws Unavailable if the host does not answer. */
export async function filesLeft(
  hostId: string,
  instanceId: string,
  signal: AbortSignal,
): Promise<AsyncGenerator<FileLeft>> {
  try {
    return framesOf(await askHost(hostId, instanceId, 'archive', new URLSearchParams(), signal))
  } catch (error) {
    if (error instanceof NotFound) return nothing() // the instance was never on this host, or is gone
    throw error
  }
}

async function* nothing(): AsyncGenerator<FileLeft> {}

const newline = 0x0a

async function* framesOf(stream: Readable): AsyncGenerator<FileLeft> {
  const chunks = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  let buffer: Buffer = Buffer.alloc(0)
  const more = async (): Promise<boolean> => {
    const next = await chunks.next()
    if (next.done) return false
    buffer = buffer.length ? Buffer.concat([buffer, next.value]) : next.value
    return true
  }
  try {
    for (;;) {
      while (!buffer.includes(newline)) if (!(await more())) return
      const end = buffer.indexOf(newline)
      const header = LogFileHeader.parse(JSON.parse(buffer.toString('utf8', 0, end)))
      buffer = buffer.subarray(end + 1)
      let left = header.bytes
      const content = async function* (): AsyncGenerator<Buffer> {
        while (left > 0) {
          if (!buffer.length && !(await more())) throw new Unavailable('The host closed the connection early')
          const part = buffer.subarray(0, left)
          buffer = buffer.subarray(part.length)
          left -= part.length
          yield part
        }
      }
      yield { ...header, content: content() }
    }
  } finally {
    stream.destroy()
  }
}
