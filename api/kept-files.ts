import { createHash } from 'node:crypto'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { RequestHandler } from 'express'

const compress = promisify(gzip)

/**
 * Serves text that stays the same until the next release: with an ETag, by which a client asks whether its copy is still
 * good, and compressed for a client that takes it. `read` is called at the first request.
 */
export function keptFile(mediaType: string, read: () => Promise<string | Buffer> | string): RequestHandler {
  const make = async () => {
    const bytes = Buffer.from(await read())
    const hash = createHash('sha256').update(bytes).digest('base64url').slice(0, 22)
    return { bytes, zipped: await compress(bytes), hash }
  }
  let made: ReturnType<typeof make> | undefined
  return async (request, response) => {
    const { bytes, zipped, hash } = await (made ??= make())
    const isZipped = request.acceptsEncodings(['gzip', 'identity']) === 'gzip'
    response.set({
      'Content-Type': mediaType,
      'Cache-Control': 'no-cache', // kept, and asked for again: a new release brings another
      Vary: 'Accept-Encoding',
      ETag: `"${hash}${isZipped ? '-gzip' : ''}"`,
      ...(isZipped ? { 'Content-Encoding': 'gzip' } : {}),
    })
    response.send(isZipped ? zipped : bytes)
  }
}
