import { createHash } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import { gzipSync } from 'node:zlib'
import { tarOf } from './archives.ts'

/** A registry on this machine with one image, as an engine pulls it. */
export interface ImageRegistry {
  /** `127.0.0.1:port/some/image:1` */
  image: string
  close: () => void
}

const shaOf = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`
const manifestType = 'application/vnd.docker.distribution.manifest.v2+json'

/**
 * Serves an image with one file of so many zeros. With `claimedBytes`, its layer says to be that long, and ends nowhere:
 * 4 MiB come, and nothing more. `login`: the `user:password` that it asks for at the moment.
 */
export async function serveImage(
  zeros: number,
  claimedBytes?: number,
  login: () => string | null = () => null,
): Promise<ImageRegistry> {
  const tar = await tarOf([{ name: 'zeros', content: Buffer.alloc(zeros) }])
  const layer = gzipSync(tar)
  const config = Buffer.from(
    JSON.stringify({
      architecture: process.arch === 'arm64' ? 'arm64' : 'amd64',
      os: 'linux',
      config: { Cmd: ['/zeros'] },
      rootfs: { type: 'layers', diff_ids: [shaOf(tar)] },
    }),
  )
  const blobs = new Map([
    [shaOf(config), config],
    [shaOf(layer), layer],
  ])
  const part = (bytes: Buffer, mediaType: string, size = bytes.length) => ({
    mediaType: `application/vnd.docker.${mediaType}`,
    size,
    digest: shaOf(bytes),
  })
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: manifestType,
      config: part(config, 'container.image.v1+json'),
      layers: [part(layer, 'image.rootfs.diff.tar.gzip', claimedBytes)],
    }),
  )
  const server = createServer(({ url = '', method, headers }, response) => {
    const wanted = login()
    if (wanted !== null && headers.authorization !== `Basic ${Buffer.from(wanted).toString('base64')}`) {
      response.writeHead(401, {
        'www-authenticate': 'Basic realm="test"',
        'content-type': 'application/json',
      })
      response.end(JSON.stringify({ errors: [{ code: 'UNAUTHORIZED', message: 'authentication required' }] }))
      return
    }
    const body = url.includes('/manifests/') ? manifest : blobs.get(url.split('/').at(-1) ?? '')
    if (!body) {
      response.writeHead(url === '/v2/' ? 200 : 404).end()
      return
    }
    const isEndless = claimedBytes !== undefined && body === layer
    response.writeHead(200, {
      'content-type': body === manifest ? manifestType : 'application/octet-stream',
      'content-length': isEndless ? claimedBytes : body.length,
      'docker-content-digest': shaOf(body),
    })
    if (method === 'HEAD') response.end()
    else if (isEndless) response.write(Buffer.alloc(4 * 1024 ** 2))
    else response.end(body)
  })
  return { image: `127.0.0.1:${await portOf(server)}/some/image:1`, close: () => stop(server) }
}

async function portOf(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (typeof address !== 'object' || !address) throw new Error('the registry does not listen')
  return address.port
}

function stop(server: Server): void {
  server.close()
  server.closeAllConnections()
}
