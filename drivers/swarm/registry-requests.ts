import { type Agent, type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http'
import { text } from 'node:stream/consumers'
import type { Readable } from 'node:stream'
import { EngineUnavailable } from '../errors.ts'
import type { RegistrySpec } from '../image-builds.ts'

// Requests to the API of a registry, as its first user.

export interface RegistryAsked {
  method: string
  path: string
  headers?: OutgoingHttpHeaders
  body?: Readable | Buffer
  signal?: AbortSignal
}

/** The answer, not read yet. Throws EngineUnavailable. */
export const sendTo = (
  agent: Agent,
  { users: [user] }: RegistrySpec,
  { body, signal, ...asked }: RegistryAsked,
): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const auth = `${user?.name}:${user?.password}`
    const its = { agent, host: 'registry', auth, ...asked, ...(signal ? { signal } : {}) }
    const sent = request(its, resolve)
    sent.on('error', (cause) => reject(new EngineUnavailable('The registry does not answer', cause)))
    if (body === undefined || Buffer.isBuffer(body)) sent.end(body)
    else {
      body.on('error', (cause) => sent.destroy(cause))
      body.pipe(sent)
    }
  })

export interface RegistryAnswer {
  status: number
  digest: string | undefined
  body: string
}

/** Reads an answer that has a text. */
export async function readAnswer(answer: IncomingMessage): Promise<RegistryAnswer> {
  const digest = answer.headers['docker-content-digest']
  const its = { status: answer.statusCode ?? 0, digest: Array.isArray(digest) ? digest[0] : digest }
  return { ...its, body: await text(answer) }
}

/** All kinds of manifests that a registry may have, for `accept`. */
export const manifestTypes = [
  'application/vnd.docker.distribution.manifest.v2+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.oci.image.index.v1+json',
].join(', ')
