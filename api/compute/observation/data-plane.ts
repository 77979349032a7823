import { Readable } from 'node:stream'
import type { IncomingMessage } from 'node:http'
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
import { pinnedSocket, sendPinned } from '../../../lib/pinned-tls.ts'
import { NotFound, Problem, type ProblemDocument, Unavailable } from '../../../lib/problem.ts'
import { socketOptions } from '../../../lib/websockets.ts'
import { Host } from '../../../models/compute/hosts.ts'
import { planeFields, planeRequest } from '../../../models/compute/plane-requests.ts'

// Clients never connect to a host: the API does, by its certificate, with a single-use token for one instance and verb.

// A host answers only after its engine has.
const handshakeTimeoutMs = 30_000
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
  asked: Streamed & { method: string; path: string },
): Promise<IncomingMessage> {
  const at = `/machines/${machine_id}/registry/${deployServerId}${asked.path}`
  const to = await requestAt(host_id, asked.method, at, registrySubject(machine_id, deployServerId))
  return sendTo(to, asked)
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
  const answer = await sendTo(to, { headers: {}, body: part?.bytes ?? Readable.from([]), signal })
  const said: unknown = await json(answer).catch(() => null)
  if (answer.statusCode === 507) throw new Problem(507, 'worker_disk_full', 'The disk of the worker is full')
  const { data } = Offset.safeParse(said)
  if (answer.statusCode !== 200 || !data) throw new Unavailable('The worker does not answer')
  return data.offset
}
const Offset = z.object({ offset: z.int() })

interface Streamed {
  headers: Record<string, string>
  body: Readable
  signal: AbortSignal
}

type HostRequest = Awaited<ReturnType<typeof planeRequest>>

async function sendTo(to: HostRequest, { headers, body, signal }: Streamed): Promise<IncomingMessage> {
  return sendPinned({ ...to, headers: { ...headers, ...to.headers }, body, signal }).catch(
    (cause: unknown) => {
      throw cause === body.errored ? cause : new Unavailable('The host does not answer', cause)
    },
  )
}

async function ask(request: Promise<HostRequest>, signal: AbortSignal): Promise<Readable> {
  const answer = await sendPinned({ ...(await request), signal }).catch((cause: unknown) => {
    throw new Unavailable('The host does not answer', cause)
  })
  if (answer.statusCode === 200) return answer
  answer.destroy()
  if (answer.statusCode === 404) throw new NotFound('instance on its host')
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
  const { url, certificate, headers } = await requestTo(hostId, instanceId, verb, query)
  const handshakeTimeout = handshakeTimeoutMs
  const socket = new WebSocket(url, {
    headers,
    handshakeTimeout,
    ...socketOptions,
    ...pinnedSocket(certificate),
  })
  const { promise, resolve, reject } = Promise.withResolvers<WebSocket>()
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
  target: string,
  subject: string,
): Promise<HostRequest> {
  const host = await Host.findById(hostId, planeFields).lean()
  return planeRequest(host, subject, { method, target })
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
