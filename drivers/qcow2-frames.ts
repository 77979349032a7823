import { type FileHandle, open } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { EngineUnavailable } from './errors.ts'

// A file on its way: frames of the parts that are not zero, in order, and one without data that tells the file's length.
// A frame is its place in the file (6 bytes), its length (4 bytes), and the data.

const headerBytes = 10
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
  try {
    for (let at = 0; ; ) {
      const buffer = Buffer.allocUnsafe(stepBytes) // a new one each time: the last may still wait to be sent
      const { bytesRead } = await handle.read(buffer, 0, stepBytes, at)
      for (const [from, to] of partsOf(buffer.subarray(0, bytesRead))) {
        yield header(at + from, to - from)
        yield buffer.subarray(from, to)
      }
      at += bytesRead
      if (bytesRead > 0) continue
      yield header(at, 0)
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
 * Writes frames to a new file; `onReceived` is told of each part as it comes, and may hold back the next. Throws
 * EngineUnavailable when they end before the file does.
 */
export async function writeFrames(
  frames: Readable,
  file: string,
  onReceived: (bytes: number) => void | Promise<void>,
): Promise<void> {
  const handle = await open(file, 'wx', 0o600)
  const sync = makeSync(handle)
  try {
    let head = Buffer.alloc(0)
    let at = 0
    let left = 0
    let parts: Buffer[] = []
    const write = async (): Promise<void> => {
      const length = parts.reduce((sum, part) => sum + part.length, 0)
      // What a full disk takes only in part is refused by the next call.
      for (let done = 0; done < length; ) {
        const { bytesWritten } = await handle.writev(after(parts, done), at + done)
        done += bytesWritten
      }
      at += length
      parts = []
      sync.wrote(length)
    }
    for await (const chunk of frames as AsyncIterable<Buffer>) {
      for (let from = 0; from < chunk.length; ) {
        if (left > 0) {
          const part = chunk.subarray(from, from + left)
          parts.push(part)
          left -= part.length
          from += part.length
          if (left === 0) await write()
          continue
        }
        const more = chunk.subarray(from, from + headerBytes - head.length)
        head = Buffer.concat([head, more])
        from += more.length
        if (head.length < headerBytes) continue
        at = head.readUIntBE(0, 6)
        left = head.readUInt32BE(6)
        head = Buffer.alloc(0)
        if (left > 0) continue
        await handle.truncate(at)
        return
      }
      await onReceived(chunk.length)
    }
    throw new EngineUnavailable('The source went away before all was copied')
  } finally {
    try {
      await sync.end()
    } finally {
      await handle.close()
    }
  }
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

function after(parts: Buffer[], bytes: number): Buffer[] {
  if (bytes === 0) return parts
  return [Buffer.concat(parts).subarray(bytes)]
}
