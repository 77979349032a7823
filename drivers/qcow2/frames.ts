import { createHash } from 'node:crypto'
import { type FileHandle, open } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { EngineUnavailable } from '../errors.ts'

// A file on its way: frames of the parts that are not zero, in order; one without data that tells the file's length; and the
// SHA-256 of all that was sent. A frame is its place in the file (6 bytes), its length (4 bytes), and the data.

const headerBytes = 10
const digestBytes = 32
// Read at a time, and the most that a frame has.
const stepBytes = 1024 ** 2
// QEMU's clusters are of this size, and what it frees leaves a hole of as many zeros in the file.
const blockBytes = 64 * 1024
const zeros = Buffer.alloc(blockBytes)

function header(at: number, length: number): Buffer {
  const bytes = Buffer.alloc(headerBytes)
  bytes.writeUIntBE(at, 0, 6)
  bytes.writeUInt32BE(length, 6)
  return bytes
}

/** A file as frames. Nobody may write to it meanwhile. */
export async function* framesOf(file: string): AsyncGenerator<Buffer> {
  const handle = await open(file)
  const hash = createHash('sha256')
  const hashed = (bytes: Buffer): Buffer => {
    hash.update(bytes)
    return bytes
  }
  try {
    for (let at = 0; ; ) {
      const buffer = Buffer.allocUnsafe(stepBytes) // a new one each time: the last may still wait to be sent
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

/** Where the parts that are not zero begin and end. */
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
 * Writes frames to a new file; `onReceived` is told of each part once it is written, and may hold back the next. Throws
 * EngineUnavailable when they end before the file does, or are not what was sent.
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

/** Takes so many bytes of a stream at a time, in the pieces in which they come. */
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

/** What a full disk takes only in part is refused by the next call. */
async function writeAll(handle: FileHandle, parts: Buffer[], at: number): Promise<void> {
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  let { bytesWritten: done } = await handle.writev(parts, at)
  if (done === length) return
  const bytes = Buffer.concat(parts)
  while (done < length) done += (await handle.write(bytes, done, length - done, at + done)).bytesWritten
}

const syncEachBytes = 32 * 1024 ** 2

/** Has the medium write beside the network, and not only once all has come. */
function makeSync(handle: FileHandle) {
  let waiting = 0
  let syncing: Promise<void> | null = null
  let failure: Error | null = null // the kernel tells of it once
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
