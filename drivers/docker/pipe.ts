import { Duplex } from 'node:stream'
import type Docker from 'dockerode'
import { statusOf } from './errors.ts'
import { EngineUnavailable, InstanceNotRunning } from '../errors.ts'

const headerBytes = 8
const stderr = 2

/**
 * Runs a command in a running container, and joins its input and output to the returned stream. The stream fails with
 * what the command writes to stderr. To destroy it closes the command's input. Throws InstanceNotRunning.
 */
export async function openPipe(
  docker: Docker,
  { id, engineId }: { id: string; engineId: string },
  command: string[],
): Promise<Duplex> {
  const notRunning = (error: unknown): never => {
    throw statusOf(error) === 409 ? new InstanceNotRunning(id, error) : error
  }
  const attached = { AttachStdin: true, AttachStdout: true, AttachStderr: true, Tty: false }
  const exec = await docker
    .getContainer(engineId)
    .exec({ Cmd: command, ...attached })
    .catch(notRunning)
  const raw: Duplex = await exec.start({ hijack: true, stdin: true }).catch(notRunning)
  return takeFrames(raw)
}

/** The content of the engine's frames: each has a header with the stream's number and the length. */
export function takeFrames(raw: Duplex): Duplex {
  let rest: Buffer = Buffer.alloc(0)
  const pipe = new Duplex({
    read: () => raw.resume(),
    write: (chunk: Buffer, _, done) => {
      if (raw.write(chunk)) done()
      else raw.once('drain', done)
    },
    final: (done) => raw.end(done),
    destroy: (error, done) => {
      raw.destroy()
      done(error)
    },
  })
  // It may break before or after it has a reader; an error that nobody hears would end the process.
  pipe.on('error', () => {})
  raw.on('data', (chunk: Buffer) => {
    rest = rest.length ? Buffer.concat([rest, chunk]) : chunk
    while (rest.length >= headerBytes && rest.length >= headerBytes + rest.readUInt32BE(4)) {
      const end = headerBytes + rest.readUInt32BE(4)
      const content = rest.subarray(headerBytes, end)
      const isError = rest[0] === stderr
      rest = rest.subarray(end)
      if (isError) pipe.destroy(broken(content.toString('utf8', 0, 500).trim()))
      else if (!pipe.push(content)) raw.pause()
    }
  })
  raw.on('error', (error) => pipe.destroy(broken(error.message, error)))
  raw.on('end', () => pipe.push(null))
  raw.on('close', () => {
    if (!pipe.readableEnded) pipe.push(null)
  })
  return pipe
}

const broken = (because: string, cause?: unknown): EngineUnavailable =>
  new EngineUnavailable('The connection into the container broke', new Error(because, { cause }))
