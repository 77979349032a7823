import { Readable, type Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { extract, pack } from 'tar-stream'
import { ArchiveRefused } from '../errors.ts'
import { makeArchiveRules } from './archive-rules.ts'

export interface ArchiveLimits {
  entries: number
  /** Unpacked. */
  bytes: number
  /** Unpacked bytes for each packed one, once that many bytes are unpacked. */
  ratio: number
  ratio_from_bytes: number
}

export interface CheckedArchive {
  /** A tar of the same files: owned by root, without special modes. It fails with ArchiveRefused. */
  files: Readable
  /** What it has had so far. */
  found: () => { files: number; bytes: number }
}

/**
 * Reads a .tgz of which nothing is believed: only regular files, folders and links that stay inside; bounded in count,
 * size and ratio.
 */
export function checkedArchive(packed: Readable, limits: ArchiveLimits): CheckedArchive {
  const entries = extract()
  const files = pack()
  const rules = makeArchiveRules(limits.entries)
  let packedBytes = 0
  let bytes = 0
  let fault: unknown = null // the first one: the streams that it ends fail too
  const refuse = (error: unknown): void => {
    fault ??= asRefusal(error)
  }
  packed.on('error', (error) => {
    fault ??= error
  })
  const unpacked = createGunzip().on('error', refuse)
  entries.on('error', refuse)

  const counted = async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of source) {
      packedBytes += chunk.length
      yield chunk
    }
  }
  const bounded = async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of source) {
      bytes += chunk.length
      if (bytes > limits.bytes) throw new ArchiveRefused(`it unpacks to more than ${mib(limits.bytes)} MiB`)
      if (bytes > limits.ratio_from_bytes && bytes > packedBytes * limits.ratio)
        throw new ArchiveRefused(`it unpacks to more than ${limits.ratio} times its size`)
      yield chunk
    }
  }

  const checkedHeader: typeof rules.check = (header) => {
    try {
      return rules.check(header)
    } catch (error) {
      refuse(error)
      throw error
    }
  }

  async function copy(): Promise<void> {
    for await (const entry of entries) {
      const header = checkedHeader(entry.header)
      if (!header) {
        entry.resume()
        continue
      }
      if (header.type !== 'file') {
        entry.resume()
        files.entry(header)
        continue
      }
      await pipeline(entry as unknown as Readable, asWritable(files.entry(header)))
    }
  }

  async function read(): Promise<void> {
    try {
      await Promise.all([pipeline(packed, counted, unpacked, bounded, asWritable(entries)), copy()])
      files.finalize()
    } catch (error) {
      packed.destroy()
      files.destroy((fault ?? asRefusal(error)) as Error)
    }
  }

  // Begins when it is read: an error before would have nobody to hear it.
  async function* checked(): AsyncGenerator<Buffer> {
    void read()
    yield* files as unknown as AsyncIterable<Buffer>
  }

  return {
    files: Readable.from(checked(), { objectMode: false }),
    found: () => ({ files: rules.files(), bytes: rules.bytes() }),
  }
}

// tar-stream’s streams work as Node’s do, and have other types.
const asWritable = (stream: unknown): Writable => stream as Writable

const mib = (bytes: number): number => Math.round(bytes / 1024 ** 2)

/**
 * What the readers of gzip and tar say of bytes that could be read is the archive's fault: another try would find the same.
 * Not so if the bytes ended before their time.
 */
const asRefusal = (error: unknown): unknown =>
  error instanceof ArchiveRefused || (error as { code?: string }).code === 'ERR_STREAM_PREMATURE_CLOSE'
    ? error
    : new ArchiveRefused('it is not a whole .tgz', error)
