import { createHash } from 'node:crypto'
import { type FileHandle, open } from 'node:fs/promises'
import type { Watching } from './disks.ts'
import { EngineUnavailable } from './errors.ts'
import { run } from './programs.ts'
import { asArgument, imageNode } from './qcow2-images.ts'

// Whether two hosts' images hold the same is found out by each reading its own: over the network and its encryption,
// reading takes ten times as long.

// QEMU's clusters, which it maps, are of this size; so images that allocated different ones agree block by block.
const blockBytes = 64 * 1024
const zeros = Buffer.alloc(blockBytes)

// At a time, so that the process can do other things in between: some milliseconds of work.
const stepBytes = 4 * 1024 ** 2

/** A part of the disk, and where the image's file has it. */
interface Extent {
  start: number
  length: number
  data: boolean
  zero: boolean
  offset?: number
}

/**
 * SHA-256 over size and contents of the disk in an image, in hexadecimal. Blocks of zeros count as absent, so that two
 * images of one disk agree whatever each has allocated. Nobody may write meanwhile.
 */
export async function digestOf(file: string, { onProgress, signal }: Watching = {}): Promise<string> {
  const map = await run('qemu-img', ['map', '--output=json', asArgument(imageNode(file))], { signal })
  const extents = JSON.parse(map) as Extent[]
  const stored = extents.filter(({ data, zero }) => data && !zero)
  const total = stored.reduce((sum, { length }) => sum + length, 0)
  const hash = createHash('sha256').update(`${extents.reduce((sum, { length }) => sum + length, 0)}\n`)
  const handle = await open(file)
  try {
    let done = 0
    for (const extent of stored) {
      for await (const { at, bytes } of steps(handle, extent)) {
        signal?.throwIfAborted()
        for (let from = 0; from < bytes.length; from += blockBytes) {
          const block = bytes.subarray(from, from + blockBytes)
          if (block.equals(zeros.subarray(0, block.length))) continue
          hash.update(`${at + from}\n`).update(block)
        }
        done += bytes.length
        onProgress?.((100 * done) / total)
      }
    }
  } finally {
    await handle.close()
  }
  return hash.digest('hex')
}

async function* steps(handle: FileHandle, { start, length, offset }: Extent) {
  if (offset === undefined) throw new EngineUnavailable('The image is compressed')
  const buffer = Buffer.alloc(Math.min(length, stepBytes))
  for (let at = 0; at < length; at += buffer.length) {
    const wanted = Math.min(buffer.length, length - at)
    const { bytesRead } = await handle.read(buffer, 0, wanted, offset + at)
    // A file may end before its last cluster does: what is not there is zeros.
    buffer.fill(0, bytesRead, wanted)
    yield { at: start + at, bytes: buffer.subarray(0, wanted) }
  }
}
