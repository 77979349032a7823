import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { z } from 'zod'
import { asking } from '../docker/errors.ts'
import { EngineUnavailable, MachineDiskFull } from '../errors.ts'
import type { CopyImages, RegistrySpec, TaggedImage } from '../image-builds.ts'
import type { PipeMachine } from '../swarms.ts'
import { StreamAgent } from '../system/stream-agent.ts'
import { outputOf } from './output.ts'
import { awaitCollection, dropUpload, uploadPath } from './registry.ts'
import {
  manifestTypes,
  readAnswer,
  type RegistryAnswer,
  type RegistryAsked,
  sendTo,
} from './registry-requests.ts'

// Copies between registries go through this process, by one connection to each: neither registry can do it, and engines
// would pack layers anew, which changes their digests.

interface Parts {
  pipe: PipeMachine
  connectFrom: (machineId: string, address: string, port: number) => Promise<Duplex>
}

const Part = z.object({ digest: z.string(), size: z.int().nonnegative() })
type Part = z.infer<typeof Part>
const Manifest = z.object({
  config: Part.optional(),
  layers: z.array(Part).default([]),
  /** Of an index. */
  manifests: z.array(Part).default([]),
})

/** What the registry no longer has. */
class Missing extends Error {
  override readonly name = 'Missing'
}

export function makeRegistryCopies({ pipe, connectFrom }: Parts): CopyImages {
  return (machineId, { from, to }, { images, names }, signal) =>
    asking(async () => {
      // One that an interrupted process has begun would remove layers whose image is not there yet.
      await outputOf(pipe, machineId, awaitCollection)
      const [source, target] = [from, to].map((spec) => {
        const connect = () => connectFrom(machineId, spec.ip_address, spec.port)
        return openRegistry(connect, spec, signal)
      }) as [Registry, Registry]
      // What was stored of a layer would keep the disk full.
      const dropFrom = async (path: string): Promise<void> => {
        const [, image, upload] = uploadPath.exec(path) ?? []
        if (image && upload) await outputOf(pipe, machineId, ['sh', '-c', dropUpload, 'sh', image, upload])
      }
      const copied: string[] = []
      try {
        for (const image of images)
          if (await copyImage({ source, target, dropFrom, names }, image)) copied.push(image.tag)
      } finally {
        source.close()
        target.close()
      }
      return copied
    }, signal)
}

type Registry = ReturnType<typeof openRegistry>

function openRegistry(connect: () => Promise<Duplex>, spec: RegistrySpec, signal?: AbortSignal) {
  const agent = new StreamAgent(connect, { keepAlive: true })
  const send = (method: string, path: string, more: Partial<RegistryAsked> = {}): Promise<IncomingMessage> =>
    sendTo(agent, spec, { method, path, ...(signal ? { signal } : {}), ...more })
  return {
    send,
    ask: async (method: string, path: string, more: Partial<RegistryAsked> = {}) => {
      const answer = await send(method, path, more)
      return { ...(await readAnswer(answer)), location: answer.headers.location }
    },
    close: () => agent.destroy(),
  }
}

interface Copying {
  source: Registry
  target: Registry
  /** Removes what the target has of an upload. */
  dropFrom: (path: string) => Promise<void>
  /** The images that the target may have. */
  names: string[]
}

/** False if the source no longer has it. */
async function copyImage(
  { source, target, dropFrom, names }: Copying,
  { image, tag, digest }: TaggedImage & { digest: string },
): Promise<boolean> {
  const headers = { accept: manifestTypes }
  const others = names.filter((name) => name !== image)

  async function copyBlob({ digest: blob, size }: Part): Promise<void> {
    const has = async (name: string): Promise<boolean> =>
      (await target.ask('HEAD', `/v2/${name}/blobs/${blob}`)).status === 200
    if (await has(image)) return
    const uploads = `/v2/${image}/blobs/uploads/`
    for (const other of others)
      if (await has(other)) {
        const mounted = await target.ask('POST', `${uploads}?mount=${blob}&from=${other}`)
        if (mounted.status === 201) return
      }
    const { location } = expected(202, await target.ask('POST', uploads))
    const bytes = await source.send('GET', `/v2/${image}/blobs/${blob}`)
    if (bytes.statusCode !== 200) throw await refusal(bytes)
    const { pathname, searchParams } = new URL(location ?? '', 'http://registry')
    searchParams.set('digest', blob)
    const sent = { 'content-length': size, 'content-type': 'application/octet-stream' }
    const path = `${pathname}?${searchParams.toString()}`
    try {
      expected(201, await target.ask('PUT', path, { headers: sent, body: bytes }))
    } catch (error) {
      if (error instanceof MachineDiskFull) await dropFrom(pathname)
      throw error
    }
  }

  async function copyManifest(wanted: string, name: string): Promise<void> {
    const there = await target.ask('HEAD', `/v2/${image}/manifests/${name}`, { headers })
    if (there.status === 200 && there.digest === wanted) return
    const answer = await source.send('GET', `/v2/${image}/manifests/${wanted}`, { headers })
    if (answer.statusCode !== 200) throw await refusal(answer)
    const body = await buffer(answer)
    const { config, layers, manifests } = Manifest.parse(JSON.parse(body.toString()))
    for (const blob of [...(config ? [config] : []), ...layers]) await copyBlob(blob)
    // Without tags of their own the parts of an index would never be removed.
    for (const [index, part] of manifests.entries()) await copyManifest(part.digest, `${tag}.${index}`)
    const sent = { 'content-type': answer.headers['content-type'], 'content-length': body.length }
    expected(201, await target.ask('PUT', `/v2/${image}/manifests/${name}`, { headers: sent, body }))
  }

  try {
    await copyManifest(digest, tag)
    return true
  } catch (error) {
    if (error instanceof Missing) return false
    throw error
  }
}

/** A source that answers with another status than 200. */
async function refusal(answer: IncomingMessage): Promise<Error> {
  const { status, body } = await readAnswer(answer)
  if (status === 404) return new Missing()
  return new EngineUnavailable('The registry does not return the image', new Error(`${status} ${body}`))
}

/** The errors of a full disk are those of the registry’s system calls. */
function expected<A extends RegistryAnswer>(status: number, answer: A): A {
  if (answer.status === status) return answer
  const cause = new Error(`${answer.status} ${answer.body.slice(0, 500)}`)
  if (/no space left|"Err":28\b/i.test(answer.body)) throw new MachineDiskFull(cause)
  throw new EngineUnavailable('The registry does not accept the image', cause)
}
