import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { LogFile, LogFiles, LogSource } from '../../drivers/log-files.ts'
import type { LogFileHeader } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'

const partBytes = 256 * 1024

/**
 * Sends all present log files of a container, each after a header line. The files are open, so they may be removed
 * meanwhile.
 */
export async function sendFilesLeft(files: LogFiles, id: string, response: ServerResponse): Promise<void> {
  const source = await files.sourceOf(id)
  if (!source) throw new NotFound('instance')
  const open = files.open(source, 'all')
  try {
    response.writeHead(200, { 'content-type': 'application/octet-stream', 'cache-control': 'no-store' })
    response.flushHeaders()
    await pipeline(Readable.from(framesOf(source, open), { objectMode: false }), response)
  } finally {
    for (const file of open) file.close()
  }
}

function* framesOf({ engine_id, engine_created_at }: LogSource, files: LogFile[]): Generator<Buffer> {
  for (const file of files) {
    if (!file.bytes) continue
    const { key, bytes, after_gap } = file
    const header: LogFileHeader = { engine_id, engine_created_at, file: key, bytes, after_gap }
    yield Buffer.from(`${JSON.stringify(header)}\n`)
    for (let at = 0; at < file.bytes; ) {
      const part = file.read(at, partBytes)
      at += part.length
      yield part
    }
  }
}
