import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createZstdDecompress } from 'node:zlib'

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
    const inside = createZstdDecompress()
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
