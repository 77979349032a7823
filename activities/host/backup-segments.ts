import type { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { zstdCompress, zstdDecompress } from 'node:zlib'
import { pack } from 'tar-stream'
import { BackupDamaged } from '../../drivers/errors.ts'
import { sealSegment, segmentBytes, unsealSegment } from '../../lib/archive-protocol.ts'
import { type CopyOrder, damagedAtMost, partMissingCode } from '../../lib/backup-protocol.ts'

// The segments of a log that follow on a copy of an engine's files.

const compress = promisify(zstdCompress)
const decompress = promisify(zstdDecompress)

type Log = NonNullable<CopyOrder['log']>
type Fetch = (name: string) => Promise<Readable>

/** What is stored of a segment. */
export const storedSegment = async (
  { id, key }: { id: string; key: string },
  name: string,
  plain: Buffer,
): Promise<Buffer> => sealSegment(key, id, name, await compress(plain))

/** Throws BackupDamaged unless the segment is there as it was written. */
async function readSegment({ archive_id, key }: Log, name: string, fetch: Fetch): Promise<Buffer> {
  const sealed = await fetch(name).then(buffer, (error: unknown) => {
    if (error instanceof Error && Reflect.get(error, 'code') === partMissingCode)
      throw new BackupDamaged(`the segment ${name} of the log is no longer stored`, error)
    throw error
  })
  try {
    const plain = await decompress(unsealSegment(key, archive_id, name, sealed))
    if (plain.length === segmentBytes) return plain
  } catch (error) {
    throw new BackupDamaged(`the segment ${name} of the log is not as it was written`, error)
  }
  throw new BackupDamaged(`the segment ${name} of the log is cut off`)
}

/** The segments that cannot be read as they were written, the first ones of very many. */
export async function damagedIn(log: Log, fetch: Fetch): Promise<string[]> {
  const damaged: string[] = []
  for (const name of log.segments)
    await readSegment(log, name, fetch).catch((error: unknown) => {
      if (!(error instanceof BackupDamaged)) throw error
      if (damaged.length < damagedAtMost) damaged.push(name)
    })
  return damaged
}

/** A tar of the segments. Throws BackupDamaged. */
export async function* tarOfSegments(log: Log, fetch: Fetch): AsyncGenerator<Buffer> {
  for (const name of log.segments) {
    const one = pack()
    one.entry({ name, mode: 0o644 }, await readSegment(log, name, fetch))
    // Only the last is followed by the end of the tar.
    if (name === log.segments.at(-1)) one.finalize()
    else one.push(null)
    yield await buffer(one)
  }
}
