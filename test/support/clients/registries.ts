import { createHash, randomBytes } from 'node:crypto'
import { request } from 'node:http'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { CredentialsBody } from './deploy-servers.ts'

export const manifestType = 'application/vnd.oci.image.manifest.v1+json'
export const indexType = 'application/vnd.oci.image.index.v1+json'

interface Answer {
  status: number
  headers: Record<string, unknown>
  body: string
}

export const digestOf = (bytes: Buffer): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`

/** The registry of a deploy server, by requests of our own. `credentials`: as they are at each request. */
export function registryOf(credentials: () => CredentialsBody) {
  const registry = {
    /** A request of the registry’s protocol. Paths begin after the deploy server’s. */
    ask: (
      method: string,
      path: string,
      {
        token = credentials().api_token,
        body,
        headers = {},
      }: { token?: string; body?: Buffer | Readable; headers?: object } = {},
    ): Promise<Answer> => {
      const [host, own] = credentials().registry.split('/')
      const url = new URL(path.startsWith('/') ? path : `/v2/${own}/${path}`, `http://${host}`)
      return new Promise((resolve, reject) => {
        const options = { method, auth: `token:${token}`, headers: { ...headers }, agent: false }
        const sent = request(url, options, (response) => {
          const { statusCode: status = 0 } = response
          text(response).then((said) => resolve({ status, headers: response.headers, body: said }), reject)
        })
        sent.on('error', reject)
        if (body instanceof Readable) body.pipe(sent)
        else sent.end(body)
      })
    },

    /** Sends a layer in two parts, as the protocol allows. */
    async upload(image: string, bytes: Buffer): Promise<{ digest: string; size: number }> {
      let location = `${image}/blobs/uploads/`
      const next = async (method: string, path: string, body?: Readable): Promise<void> => {
        const { status, headers, body: said } = await registry.ask(method, path, body ? { body } : {})
        if (status !== 202 && status !== 201) throw new Error(`${method} of a layer -> ${status} ${said}`)
        location = String(headers['location'])
      }
      await next('POST', location)
      const half = Math.floor(bytes.length / 2)
      for (const part of [bytes.subarray(0, half), bytes.subarray(half)])
        await next('PATCH', location, Readable.from([part]))
      const digest = digestOf(bytes)
      await next('PUT', `${location}&digest=${digest}`)
      return { digest, size: bytes.length }
    },

    put: (image: string, name: string, manifest: object, type = manifestType) =>
      registry.ask('PUT', `${image}/manifests/${name}`, {
        body: Buffer.from(JSON.stringify(manifest)),
        headers: { 'content-type': type },
      }),

    configOf: async (image: string) => ({
      mediaType: 'application/vnd.oci.image.config.v1+json',
      ...(await registry.upload(image, Buffer.from('{}'))),
    }),

    /** The manifest of an image of one layer, which is in the registry. */
    async imageOf(image: string, bytes = randomBytes(2000)) {
      const config = await registry.configOf(image)
      const sent = await registry.upload(image, bytes)
      const layer = { mediaType: 'application/vnd.oci.image.layer.v1.tar', ...sent }
      return { schemaVersion: 2, mediaType: manifestType, config, layers: [layer] }
    },
  }
  return registry
}
