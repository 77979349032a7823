import { itemBatch, type ItemEnd } from '../../lib/runner-maps.ts'

interface Waiting {
  end: ItemEnd
  resolve: () => void
  reject: (error: unknown) => void
}

/**
 * Writes the ends of items in the order that they come, one request after the other: each takes what has come meanwhile, within
 * the bounds of a request. After a failure, all that follow fail.
 */
export function makeItemWriter(send: (ends: ItemEnd[]) => Promise<void>) {
  const waiting: Waiting[] = []
  let failure: { error: unknown } | null = null
  let writing: Promise<void> | null = null

  function next(): Waiting[] {
    const some = waiting.splice(0, 1)
    let bytes = sizeOf(some[0])
    while (waiting.length > 0 && some.length < itemBatch.items) {
      bytes += sizeOf(waiting[0])
      if (bytes > itemBatch.bytes) break
      some.push(...waiting.splice(0, 1))
    }
    return some
  }

  async function writeAll(): Promise<void> {
    while (waiting.length > 0) {
      const some = next()
      try {
        if (failure) throw failure.error
        await send(some.map(({ end }) => end))
        for (const { resolve } of some) resolve()
      } catch (error) {
        failure ??= { error }
        for (const { reject } of some) reject(error)
      }
    }
    writing = null
  }

  return {
    /** Resolves when it is written. Who does not wait for that calls `flush`. */
    write(end: ItemEnd): Promise<void> {
      const written = new Promise<void>((resolve, reject) => waiting.push({ end, resolve, reject }))
      written.catch(() => {}) // `flush` says so
      writing ??= writeAll()
      return written
    },
    /** As many wait as go into a request. */
    isFull: (): boolean => waiting.length >= itemBatch.items,
    /** Rejects if anything was not written. */
    async flush(): Promise<void> {
      await writing
      if (failure) throw failure.error
    },
  }
}

const sizeOf = (one: Waiting | undefined): number =>
  one?.end.status === 'succeeded' ? Buffer.byteLength(one.end.output) : 0
