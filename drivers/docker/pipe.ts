import { Duplex } from 'node:stream'
import type Docker from 'dockerode'
import { statusOf } from './errors.ts'
import { EngineUnavailable, InstanceNotRunning } from '../errors.ts'

const headerBytes = 8
const stderr = 2
const saidAtMost = 500
const none: Buffer = Buffer.alloc(0)

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

/** The content of the engine's frames: each has a header with the stream's number and the length. Content is not copied. */
export function takeFrames(raw: Duplex): Duplex {
  let header = none
  let left = 0 // of the frame whose header is complete
  let said = none
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

  /** Takes what belongs to one header, or to the content of one frame, and returns the rest. */
  function take(chunk: Buffer): Buffer {
    const inHeader = header.length < headerBytes
    const taken = chunk.subarray(0, inHeader ? headerBytes - header.length : left)
    if (inHeader) {
      header = Buffer.concat([header, taken])
      if (header.length === headerBytes) left = header.readUInt32BE(4)
    } else {
      left -= taken.length
      give(taken)
    }
    if (header.length === headerBytes && left === 0) header = none
    return chunk.subarray(taken.length)
  }

  function give(content: Buffer): void {
    if (header[0] !== stderr) {
      if (!pipe.push(content)) raw.pause()
      return
    }
    said = Buffer.concat([said, content]).subarray(0, saidAtMost)
    if (left === 0) pipe.destroy(broken(said.toString().trim()))
  }

  raw.on('data', (chunk: Buffer) => {
    for (let rest = chunk; rest.length > 0; ) rest = take(rest)
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
