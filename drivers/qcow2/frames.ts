import { createHash } from 'node:crypto'
import { type FileHandle, open } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { EngineUnavailable } from '../errors.ts'

// The transfer format of a file: frames with the non-zero parts in order, a frame without data that gives the file's
// length, and the SHA-256 of everything sent. A frame is an offset (6 bytes), a length (4 bytes), and the data.

const headerBytes = 10
const digestBytes = 32
// The size of a read, and the maximum of a frame.
const stepBytes = 1024 ** 2
// The size of QEMU's clusters: what QEMU frees leaves a hole of that many zeros.
const blockBytes = 64 * 1024
const zeros = Buffer.alloc(blockBytes)

function header(at: number, length: number): Buffer {
  const bytes = Buffer.alloc(headerBytes)
  bytes.writeUIntBE(at, 0, 6)
  bytes.writeUInt32BE(length, 6)
  return bytes
}

/** Reads a file as frames. The file must not change meanwhile. */
export async function* framesOf(file: string): AsyncGenerator<Buffer> {
  const handle = await open(file)
  const hash = createHash('sha256')
  const hashed = (bytes: Buffer): Buffer => {
    hash.update(bytes)
    return bytes
  }
  try {
    for (let at = 0; ; ) {
      const buffer = Buffer.allocUnsafe(stepBytes) // a new buffer each time: the last may still wait to be sent
      const { bytesRead } = await handle.read(buffer, 0, stepBytes, at)
      for (const [from, to] of partsOf(buffer.subarray(0, bytesRead))) {
        yield hashed(header(at + from, to - from))
        yield hashed(buffer.subarray(from, to))
      }
      at += bytesRead
      if (bytesRead > 0) continue
      yield hashed(header(at, 0))
      yield hash.digest()
      return
    }
  } finally {
    await handle.close()
  }
}

/** The ranges of the non-zero parts. */
function partsOf(bytes: Buffer): [from: number, to: number][] {
  const parts: [number, number][] = []
  for (let from = 0; from < bytes.length; from += blockBytes) {
    const block = bytes.subarray(from, from + blockBytes)
    if (block.equals(zeros.subarray(0, block.length))) continue
    const last = parts.at(-1)
    if (last?.[1] === from) last[1] += block.length
    else parts.push([from, from + block.length])
  }
  return parts
}

/**
 * Writes frames to a new file. `onReceived` is called after each written part and may delay the next. Throws
 * EngineUnavailable if the frames end early or their checksum is wrong.
 */
export async function writeFrames(
  frames: Readable,
  file: string,
  onReceived: (bytes: number) => void | Promise<void>,
): Promise<void> {
  const handle = await open(file, 'wx', 0o600)
  const sync = makeSync(handle)
  const hash = createHash('sha256')
  const take = makeTake(frames)
  try {
    for (;;) {
      const head = Buffer.concat(await take(headerBytes))
      hash.update(head)
      const [at, length] = [head.readUIntBE(0, 6), head.readUInt32BE(6)]
      if (length === 0) {
        await handle.truncate(at)
        break
      }
      if (length > stepBytes) throw notWhatWasSent()
      const parts = await take(length)
      for (const part of parts) hash.update(part)
      await writeAll(handle, parts, at)
      sync.wrote(length)
      await onReceived(length)
    }
    if (!Buffer.concat(await take(digestBytes)).equals(hash.digest())) throw notWhatWasSent()
  } finally {
    try {
      await sync.end()
    } finally {
      await handle.close()
    }
  }
}

const notWhatWasSent = (): Error => new EngineUnavailable('The pulled disk differs from its source')

/** Takes a given number of bytes from a stream, in the chunks in which they arrive. */
function makeTake(stream: Readable): (bytes: number) => Promise<Buffer[]> {
  const chunks = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  let rest: Buffer = Buffer.alloc(0)
  return async (bytes) => {
    const parts: Buffer[] = []
    for (let left = bytes; left > 0; ) {
      if (rest.length === 0) {
        const { value, done } = await chunks.next()
        if (done) throw new EngineUnavailable('The source disconnected before the copy was complete')
        rest = value
        continue
      }
      const part = rest.subarray(0, left)
      parts.push(part)
      rest = rest.subarray(part.length)
      left -= part.length
    }
    return parts
  }
}

/** A full disk may write only a part; the next call then fails. */
async function writeAll(handle: FileHandle, parts: Buffer[], at: number): Promise<void> {
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  let { bytesWritten: done } = await handle.writev(parts, at)
  if (done === length) return
  const bytes = Buffer.concat(parts)
  while (done < length) done += (await handle.write(bytes, done, length - done, at + done)).bytesWritten
}

const syncEachBytes = 32 * 1024 ** 2

/** Syncs while data arrives, so that disk and network work in parallel. */
function makeSync(handle: FileHandle) {
  let waiting = 0
  let syncing: Promise<void> | null = null
  let failure: Error | null = null // the kernel reports it only once
  return {
    wrote(bytes: number) {
      waiting += bytes
      if (syncing || waiting < syncEachBytes) return
      waiting = 0
      syncing = handle
        .datasync()
        .catch((error: Error) => void (failure ??= error))
        .finally(() => (syncing = null))
    },
    async end() {
      await syncing
      if (failure) throw failure
    },
  }
}
