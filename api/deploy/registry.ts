import { createHash } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Express, Request, Response } from 'express'
import { readOn } from '../../lib/early-answers.ts'
import { newId } from '../../lib/ids.ts'
import type { Logger } from '../../lib/log.ts'
import { lastHeader, pushesHeader, relayed } from '../../lib/registry-relay.ts'
import { builder } from '../../models/deploy/artifacts.ts'
import { DeployServer, type DeployServerDocument } from '../../models/deploy/deploy-servers.ts'
import { trimBuilds } from '../../models/deploy/old-builds.ts'
import { acceptPush, digestOfTag, tagsOfImage } from '../../models/deploy/pushed-images.ts'
import { makeRegistryPassword } from '../../models/deploy/registries.ts'
import { onHosts } from '../../models/deploy/replicas.ts'
import {
  type DeployIdentity,
  deployIdentityOf,
  isDeployToken,
} from '../../models/identity/deploy-credentials.ts'
import { audit } from '../audit.ts'
import { askRegistry } from '../compute/observation/data-plane.ts'
import { makeLimiter } from '../limits.ts'
import { toProblem } from '../problems.ts'
import { whileAllowed } from '../still-allowed.ts'
import { readManifest } from './registry-manifests.ts'
import {
  insideQuery,
  isDigest,
  outsideLocation,
  readRegistryPath,
  type RegistryPath,
} from './registry-paths.ts'

// The registries of deploy servers, for `docker push` and `docker pull` from outside. The api checks the token of each
// request and passes it on to the registry in the machine, through its host. A pushed manifest gets a record, as a build
// has.

const mostManifestBytes = 4 * 1024 ** 2

/** A refusal in the form of registries. */
class Refusal extends Error {
  override readonly name = 'Refusal'
  readonly status: number
  readonly code: string
  readonly headers: Record<string, string>

  constructor(status: number, code: string, message: string, headers: Record<string, string> = {}) {
    super(message)
    this.status = status
    this.code = code
    this.headers = headers
  }
}

const unauthorized = () =>
  new Refusal(401, 'UNAUTHORIZED', 'log in with the API token of the deploy server as the password', {
    'WWW-Authenticate': 'Basic realm="keelson"',
  })
const diskFull = () => new Refusal(507, 'DENIED', 'worker_disk_full: the disk of the worker is full')
const unknown = () => new Refusal(404, 'NAME_UNKNOWN', 'no such image')

/** Serves the registries at /v2/. */
export function serveRegistries(app: Express, { ratePerSec }: { ratePerSec: number }, log: Logger): void {
  // Many callers may share one address.
  const limits = { address: makeLimiter(ratePerSec * 10, 1), server: makeLimiter(ratePerSec, 1) }

  async function answer(request: Request, response: Response): Promise<void> {
    response.set('Docker-Distribution-Api-Version', 'registry/2.0')
    await limits.address(request.ip ?? '', response)
    const { server, identity } = await callerOf(request)
    // A blob may take minutes.
    whileAllowed(
      response,
      () => callerOf(request),
      () => response.destroy(),
    )
    await limits.server(server._id, response)
    const { pathname, searchParams } = new URL(request.originalUrl, 'http://api')
    if (/^\/v2\/?$/.test(pathname)) return void response.json({})
    const path = readRegistryPath(pathname)
    if (!path) throw unknown()
    if (path.server !== server._id.slice(-12))
      throw new Refusal(403, 'DENIED', 'the API token belongs to another deploy server')
    if (!path.methods.includes(request.method))
      throw new Refusal(405, 'UNSUPPORTED', `allowed: ${path.methods.join(', ')}`)
    await serve(new Exchange({ server, identity, path, request, response }), searchParams)
  }

  app.use('/v2', (request, response) => {
    answer(request, response).catch((error: unknown) => refuse(error, request, response, log))
  })
}

interface Caller {
  server: DeployServerDocument
  identity: DeployIdentity
}

/** The deploy server of the request’s token. Checked for each request, so that a rotation acts at once. */
async function callerOf({ headers }: IncomingMessage): Promise<Caller> {
  const [, encoded = ''] = /^Basic +([A-Za-z0-9+/=]{1,4096})$/i.exec(headers.authorization ?? '') ?? []
  const [, token = ''] = /^[^:]*:(.*)$/s.exec(Buffer.from(encoded, 'base64').toString()) ?? []
  const identity = isDeployToken(token) ? await deployIdentityOf(token) : null
  if (!identity) throw unauthorized()
  const { deploy_server_id: _id, tenant_id } = identity
  const server = await DeployServer.findOne({ _id, tenant_id }).lean()
  if (!server || server.status === 'deleting') throw unauthorized()
  return { server, identity }
}

interface Taken {
  path: RegistryPath
  request: Request
  response: Response
}

/** One request and its answer. */
class Exchange {
  readonly server: DeployServerDocument
  readonly identity: DeployIdentity
  readonly path: RegistryPath
  readonly request: Request
  readonly response: Response
  readonly #gone = new AbortController()

  constructor({ server, identity, path, request, response }: Caller & Taken) {
    this.server = server
    this.identity = identity
    this.path = path
    this.request = request
    this.response = response
    response.once('close', () => this.#gone.abort())
  }

  /** Sends a request about the image to the registry. Throws Unavailable. */
  async ask(
    rest: string,
    more: { headers?: Record<string, string>; body?: Readable } = {},
  ): Promise<IncomingMessage> {
    const { nodes, _id, registry_password_sealed } = this.server
    const node = nodes.find(({ name }) => name === builder)
    const [place] = await onHosts([{ machine_id: node?.machine_id ?? '', service_id: '', node: builder }])
    if (!place) throw new Refusal(503, 'UNAVAILABLE', 'the worker with the registry is not available')
    if (registry_password_sealed === '-') await makeRegistryPassword(_id)
    const { method } = this.request
    return askRegistry(place, _id, {
      method,
      path: `/v2/${this.path.image}${rest}`,
      headers: { ...relayed.request(this.request.headers), ...more.headers },
      body: more.body ?? this.request,
      signal: this.#gone.signal,
    })
  }

  /** Passes the registry’s answer on. Throws Refusal: 507 for a full disk, else 503. */
  async pass(answer: IncomingMessage): Promise<void> {
    const status = answer.statusCode ?? 502
    // What the host says itself is no registry's answer; the platform’s own login must be right.
    if (status >= 500 || status === 401) {
      if (isFull(await beginningOf(answer))) throw diskFull()
      throw new Refusal(503, 'UNAVAILABLE', 'the registry does not answer')
    }
    const headers = relayed.response(answer.headers)
    if (headers['location']) headers['location'] = outsideLocation(headers['location'], this.path.server)
    this.response.writeHead(status, headers)
    await pipeline(answer, this.response)
  }
}

async function serve(exchange: Exchange, query: URLSearchParams): Promise<void> {
  const { path, request, response, server } = exchange
  const { what, image, name } = path
  const pushes = { [pushesHeader]: image }
  switch (what) {
    case 'tags':
      return void response.json({ name: `${path.server}/${image}`, tags: await tagsOfImage(server, image) })
    case 'blob':
      return exchange.pass(await exchange.ask(`/blobs/${name}`))
    case 'uploads':
    case 'upload': {
      const rest = `/blobs/uploads/${name}${insideQuery(query, path.server)}`
      return exchange.pass(await exchange.ask(rest, request.method === 'GET' ? {} : { headers: pushes }))
    }
    case 'manifest': {
      if (request.method === 'PUT') return pushManifest(exchange)
      const digest = isDigest(name) ? name : await digestOfTag(server, image, name)
      if (digest === null) throw new Refusal(404, 'MANIFEST_UNKNOWN', 'no such tag')
      return exchange.pass(await exchange.ask(`/manifests/${digest}`))
    }
  }
}

/**
 * Puts a manifest into the registry under an id of its own. One with a tag is an image, and gets a record; others are
 * parts of an index that follows.
 */
async function pushManifest(exchange: Exchange): Promise<void> {
  const { server, response, path } = exchange
  const { image, name } = path
  const bytes = await readAll(exchange.request)
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
  const manifest = readManifest(bytes)
  if (!manifest)
    throw new Refusal(400, 'MANIFEST_INVALID', 'the body is neither an image manifest nor an index')
  const isImage = !isDigest(name)
  if (!isImage && name !== digest) throw new Refusal(400, 'DIGEST_INVALID', 'the manifest has another digest')

  const id = newId()
  const headers = {
    [pushesHeader]: image,
    [lastHeader]: String(isImage),
    'content-length': String(bytes.length),
  }
  const answer = await exchange.ask(`/manifests/${id}`, { headers, body: Readable.from([bytes]) })
  if (answer.statusCode !== 201) return exchange.pass(answer)
  answer.resume()
  if (isImage) {
    const by = { tenant_id: server.tenant_id, id: server._id, over_http: true as const }
    await trimBuilds(server) // its operation may fail before it removes anything
    await acceptPush(by, server._id, { id, image, tag: name, digest, ...manifest })
    await auditPush(exchange, id)
  }
  response
    .status(201)
    .set({ Location: `/v2/${path.server}/${image}/manifests/${digest}`, 'Docker-Content-Digest': digest })
    .end()
}

const pushing = { method: 'PUT', path: '/v2/{server}/{name}/manifests/{tag}' } as const

async function auditPush({ server, identity, request, response }: Exchange, image: string): Promise<void> {
  const actor = {
    tenant_id: server.tenant_id,
    actor_id: server._id,
    actor_kind: 'deploy_server' as const,
    actor_name: identity.name,
  }
  response.set('X-Request-Id', newId())
  const attempt = {
    actor,
    operation: pushing,
    request,
    response,
    address: request.ip ?? '',
    params: { tag: image },
  }
  await audit(attempt, { status: 201 })
}

const mostOfAnError = 16 * 1024

async function beginningOf(answer: IncomingMessage): Promise<string> {
  let said = ''
  for await (const part of answer as AsyncIterable<Buffer>)
    if (said.length < mostOfAnError) said += part.toString()
  return said
}

/** 28 is the number of that error (ENOSPC), which the registry gives without its words. */
const isFull = (said: string): boolean => /no space left on device|"Err":28\b/.test(said)

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = []
  let bytes = 0
  for await (const part of request as AsyncIterable<Buffer>) {
    bytes += part.length
    if (bytes > mostManifestBytes) throw new Refusal(413, 'SIZE_INVALID', 'the manifest is larger than 4 MiB')
    parts.push(part)
  }
  return Buffer.concat(parts)
}

function refuse(error: unknown, request: Request, response: ServerResponse, log: Logger): void {
  if (response.headersSent || response.destroyed) return void response.destroy()
  const { status, code, message, headers } = error instanceof Refusal ? error : refusalOf(error)
  if (status >= 500) log.error({ err: error, method: request.method, path: request.path }, 'request failed')
  readOn(request)
  response.writeHead(status, { 'Content-Type': 'application/json', ...headers })
  response.end(request.method === 'HEAD' ? '' : JSON.stringify({ errors: [{ code, message }] }))
}

function refusalOf(error: unknown): Refusal {
  const { status, message, headers } = toProblem(error)
  const code = { 404: 'NAME_UNKNOWN', 409: 'DENIED', 429: 'TOOMANYREQUESTS', 503: 'UNAVAILABLE' }[status]
  return new Refusal(status, code ?? 'UNKNOWN', message, headers)
}
