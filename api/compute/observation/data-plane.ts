import { Readable } from 'node:stream'
import { type IncomingMessage, request as send } from 'node:http'
import { json } from 'node:stream/consumers'
import { WebSocket } from 'ws'
import { z } from 'zod'
import {
  planeSubject,
  type PlaneVerb,
  registrySubject,
  serviceSubject,
  uploadSubject,
} from '../../../lib/host-protocol.ts'
import { NotFound, Problem, type ProblemDocument, Unavailable } from '../../../lib/problem.ts'
import { socketOptions } from '../../../lib/websockets.ts'
import { Host } from '../../../models/compute/hosts.ts'
import { planeToken } from '../../../models/compute/plane-tokens.ts'

// Clients never connect to a host: the API does, with a single-use token for one instance and verb.

// A host answers only after its engine has.
const handshakeTimeoutMs = 30_000
// Detects that a host has vanished from an idle connection.
const probeEveryMs = 30_000
// A problem document is smaller.
const maxRefusalBytes = 64 * 1024

/** Sends a request to the instance's host. Throws NotFound, Unavailable. */
export const askHost = (
  hostId: string,
  instanceId: string,
  verb: 'logs' | 'archive' | 'counters',
  query: URLSearchParams,
  signal: AbortSignal,
): Promise<Readable> => ask(requestTo(hostId, instanceId, verb, query), signal)

/** Asks the host of a deploy server's machine for the output of a service in it. Throws NotFound, Unavailable. */
export const askService = (
  hostId: string,
  { machine_id, service_id }: { machine_id: string; service_id: string },
  query: URLSearchParams,
  signal: AbortSignal,
): Promise<Readable> => {
  const path = `/machines/${machine_id}/services/${service_id}/logs?${query.toString()}`
  return ask(requestAt(hostId, 'GET', path, serviceSubject(machine_id, service_id)), signal)
}

/**
 * Sends a request, with a stream as its body, to the registry in a machine. The answer is not read yet. Throws
 * Unavailable.
 */
export async function askRegistry(
  { host_id, machine_id }: { host_id: string; machine_id: string },
  deployServerId: string,
  asked: Streamed & { path: string },
): Promise<IncomingMessage> {
  const at = `/machines/${machine_id}/registry/${deployServerId}${asked.path}`
  return sendTo(
    await requestAt(host_id, asked.method, at, registrySubject(machine_id, deployServerId)),
    asked,
  )
}

interface MachineOnHost {
  host_id: string
  machine_id: string
}

/**
 * Asks how many bytes of an archive are on a machine, after it has added `part` to them. Throws Unavailable, and
 * `worker_disk_full`.
 */
export async function askUpload(
  { host_id, machine_id }: MachineOnHost,
  artifactId: string,
  signal: AbortSignal,
  part?: { offset: number; atMost: number; bytes: Readable },
): Promise<number> {
  const query = part ? `?offset=${part.offset}&at_most=${part.atMost}` : ''
  const at = `/machines/${machine_id}/uploads/${artifactId}${query}`
  const method = part ? 'PATCH' : 'GET'
  const to = await requestAt(host_id, method, at, uploadSubject(machine_id, artifactId))
  const answer = await sendTo(to, { method, headers: {}, body: part?.bytes ?? Readable.from([]), signal })
  const said: unknown = await json(answer).catch(() => null)
  if (answer.statusCode === 507) throw new Problem(507, 'worker_disk_full', 'The disk of the worker is full')
  const { data } = Offset.safeParse(said)
  if (answer.statusCode !== 200 || !data) throw new Unavailable('The worker does not answer')
  return data.offset
}
const Offset = z.object({ offset: z.int() })

interface Streamed {
  method: string
  headers: Record<string, string>
  body: Readable
  signal: AbortSignal
}

/** A connection of its own: a request whose body is a stream cannot be sent again. */
const sendTo = (to: HostRequest, { method, headers, body, signal }: Streamed): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const options = { method, agent: false, signal, headers: { ...headers, ...to.headers } }
    const sent = send(to.url, options, resolve)
    sent.on('error', (cause) => reject(new Unavailable('The host does not answer', cause)))
    body.on('error', (cause) => {
      reject(cause)
      sent.destroy()
    })
    body.pipe(sent)
  })

async function ask(request: Promise<HostRequest>, signal: AbortSignal): Promise<Readable> {
  const { url, headers } = await request
  // A host must not lead the API elsewhere.
  const answer = await fetch(url, { headers, signal, redirect: 'error' }).catch((cause: unknown) => {
    throw new Unavailable('The host does not answer', cause)
  })
  if (answer.ok && answer.body) return Readable.fromWeb(answer.body)
  await answer.body?.cancel()
  if (answer.status === 404) throw new NotFound('instance on its host')
  throw new Unavailable('The host refused the request')
}

/**
 * Opens a WebSocket to the instance's host. It starts paused, so that no message is lost before a listener is attached.
 * Throws NotFound, Unavailable, and the host's Problem if that is a conflict.
 */
export async function connectHost(
  hostId: string,
  instanceId: string,
  verb: 'console',
  query: URLSearchParams,
): Promise<WebSocket> {
  const { url, headers } = await requestTo(hostId, instanceId, verb, query)
  const socket = new WebSocket(url, { headers, handshakeTimeout: handshakeTimeoutMs, ...socketOptions })
  const { promise, resolve, reject } = Promise.withResolvers<WebSocket>()
  socket.once('upgrade', (answer: IncomingMessage) => answer.socket.setKeepAlive(true, probeEveryMs))
  socket.once('open', () => {
    socket.pause()
    resolve(socket)
  })
  socket.once('unexpected-response', (_request, answer: IncomingMessage) => {
    refusalOf(answer)
      .then(reject, reject)
      .finally(() => socket.terminate())
  })
  socket.on('error', (cause) => reject(new Unavailable('The host does not answer', cause)))
  return promise
}

interface HostRequest {
  url: URL
  headers: { authorization: string }
}

const requestTo = (
  hostId: string,
  instanceId: string,
  verb: PlaneVerb,
  query: URLSearchParams,
): Promise<HostRequest> =>
  requestAt(
    hostId,
    'GET',
    `/instances/${instanceId}/${verb}?${query.toString()}`,
    planeSubject(instanceId, verb),
  )

async function requestAt(
  hostId: string,
  method: string,
  path: string,
  subject: string,
): Promise<HostRequest> {
  const host = await Host.findById(hostId).lean()
  if (!host?.data_plane_url) throw new Unavailable('The host is not there')
  const url = new URL(path, host.data_plane_url)
  // Without the `?` of an empty query, which `fetch` would send and the token does not have.
  if (url.search === '') url.search = ''
  const token = await planeToken(hostId, subject, { method, url })
  return { url, headers: { authorization: `Bearer ${token}` } }
}

async function refusalOf(answer: IncomingMessage): Promise<Problem> {
  if (answer.statusCode === 404) return new NotFound('instance on its host')
  if (answer.statusCode !== 409) return new Unavailable('The host refused the request')
  let text = ''
  answer.setEncoding('utf8')
  for await (const part of answer) if (text.length < maxRefusalBytes) text += part
  const { type: _, status, code, title, detail, ...extensions } = JSON.parse(text) as ProblemDocument
  return new Problem(status, code, title, detail, { extensions })
}
