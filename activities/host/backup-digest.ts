import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createZstdDecompress } from 'node:zlib'
import type { CopyOrder } from '../../lib/backup-protocol.ts'

// With Node's own 16 KiB, to decompress and hash 139 MB takes 0.42 s of CPU time instead of 0.24.
const decompressedAtOnce = 256 * 1024

/** Counts and hashes a dump that passes, plain or compressed by zstd. */
export function makeDigest() {
  const hash = createHash('sha256')
  let bytes = 0
  const take = (chunk: Buffer): void => {
    hash.update(chunk)
    bytes += chunk.length
  }

  async function* plain(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      take(chunk)
      yield chunk
    }
  }

  /** Passes on what is compressed, and takes what is in it. Throws zstd's errors. */
  async function* compressed(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    const inside = createZstdDecompress({ chunkSize: decompressedAtOnce })
    const taken = (async () => {
      for await (const chunk of inside) take(chunk as Buffer)
    })()
    taken.catch(() => {}) // awaited below
    try {
      for await (const chunk of chunks) {
        if (!inside.write(chunk)) await Promise.race([once(inside, 'drain'), taken])
        yield chunk
      }
      inside.end()
      await taken
    } finally {
      inside.destroy()
    }
  }

  return {
    plain,
    compressed,
    /** Call when all has passed. */
    result: () => ({ bytes, sha256: hash.copy().digest('hex') }),
  }
}

type Written = Pick<CopyOrder, 'compressed' | 'dump_bytes' | 'stored_sha256' | 'sha256'>

/** Compares a copy that is read with what was written. It decompresses a copy only where nothing else does. */
export function makeCheck(
  { compressed, dump_bytes, stored_sha256, sha256 }: Written,
  { isReadOnly }: { isReadOnly: boolean },
) {
  const stored = makeDigest()
  const dump = compressed ? makeDigest() : stored
  const looksInside = isReadOnly || sha256 !== null // an older copy has only the digest of what is inside
  return {
    /** Passes on what is stored. Throws zstd's errors. */
    pass: (chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> =>
      compressed && looksInside ? dump.compressed(stored.plain(chunks)) : stored.plain(chunks),
    /** Call when all has passed. */
    isAsWritten: (): boolean =>
      (stored_sha256 === null || stored.result().sha256 === stored_sha256) &&
      (sha256 === null || dump.result().sha256 === sha256) &&
      (!looksInside || dump.result().bytes === dump_bytes),
  }
}
