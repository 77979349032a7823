import { once } from 'node:events'
import { type IncomingMessage, request as ask } from 'node:http'
import { type AddressInfo, connect, createServer } from 'node:net'
import { z } from 'zod'
import { readStreamed } from '../../activities/runner/streamed-answers.ts'
import type { CallModel } from '../../activities/runner/work.ts'
import { CallState } from '../../lib/runner-calls.ts'
import { CodecKeys } from '../../lib/host-protocol.ts'
import { makeQueue } from '../../lib/queue.ts'
import { Called, type ItemEnd, OpenedMap } from '../../lib/runner-maps.ts'
import { type Credential, requestToken } from '../../lib/party-tokens.ts'
import {
  Begun,
  callKeyHeader,
  type Ended,
  Given,
  ModelGrant,
  Passages,
  RunnerSpec,
  type RunToken,
  type Turn,
  Turned,
} from '../../lib/runner-protocol.ts'
import { type KeyRing, parseKeyRing } from '../../lib/seal.ts'
import { PlatformFault } from '../platform-fault.ts'
import { untilItWorks } from '../retry.ts'
import { makeCalls } from './calls.ts'

// A runner's way out: the socket that its host has put in its container (worker/host/door.ts).

/**
 * A port of the runner's own loopback that leads to the door, byte by byte: the SDK takes no socket of a file as its proxy.
 * Returns `host:port`.
 */
export async function openPort(door: string): Promise<string> {
  const server = createServer((near) => {
    const far = connect(door)
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      one.on('error', () => {}) // it closes then
      one.once('close', () => other.destroy())
      one.pipe(other)
    }
  })
  server.unref()
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** An output may have megabytes, on a quarter of a core. */
const answersWithinMs = 30_000

const tokensWithinMs = 5_000

/** As many as a door lets through (worker/host/door.ts). */
const requestsAtOnce = 8
const modelCallsAtOnce = 32

export type RunnerApi = ReturnType<typeof makeRunnerApi>

/** API calls of a runner, signed with its key. All throw PlatformFault. */
export function makeRunnerApi(door: string, credential: Credential) {
  const inTurn = makeQueue(requestsAtOnce)

  /** Each request has a token of its own: the API takes a token once. */
  async function call<S extends z.ZodType>(
    path: string,
    schema: S,
    { method = 'GET', body, signal }: { method?: string; body?: object; signal?: AbortSignal } = {},
  ): Promise<z.infer<S>> {
    const target = `/internal/v1/runners/${credential.party.id}/${path}`
    const sent = { method, path: target, body: body && JSON.stringify(body) }
    const asked = inTurn(async () => {
      const token = await requestToken(credential, { method, target })
      return send(door, sent, token, signal)
    }, signal)
    const { status, said } = await asked.catch((cause: unknown) => {
      signal?.throwIfAborted()
      throw new PlatformFault(null, 'platform_unavailable', 'The platform’s API does not answer', cause)
    })
    if (status === 200 || status === 204) return schema.parse(said ? JSON.parse(said) : undefined)
    const { code, title } = refusalIn(said)
    throw new PlatformFault(status, code, `The platform’s API refused: ${title}`)
  }

  return {
    /** The keys of the payloads that this runner gets and sends. */
    codecKeys: async (): Promise<KeyRing> =>
      parseKeyRing((await call('codec-keys', CodecKeys)).keys, 'the runner’s codec keys'),

    /** What it carries out. */
    spec: async (): Promise<RunnerSpec> => call('spec', RunnerSpec),

    /** Each of these tries until it works, is refused or is aborted: an API that is away is no fault of the node. */
    beginNode: (run: string, node: string, attempt: number, signal: AbortSignal): Promise<Begun> =>
      patiently(signal, () =>
        call(`runs/${run}/nodes/${node}/begin?attempt=${attempt}`, Begun, { method: 'POST', signal }),
      ),
    endNode: (run: string, node: string, attempt: number, body: Ended, signal: AbortSignal): Promise<void> =>
      patiently(signal, () =>
        call(`runs/${run}/nodes/${node}/end?attempt=${attempt}`, z.void(), { method: 'PUT', body, signal }),
      ),
    turnNode: (
      run: string,
      node: string,
      attempt: number,
      { tokens, ...turn }: Turn,
      signal: AbortSignal,
    ): Promise<Turned> => {
      const unsaid = [...tokens]
      return patiently(signal, () =>
        call(`runs/${run}/nodes/${node}/turn?attempt=${attempt}`, Turned, {
          method: 'POST',
          body: { ...turn, tokens: unsaid.splice(0) }, // a repetition would say them twice
          signal,
        }),
      )
    },
    givenForOutput: (run: string, signal: AbortSignal): Promise<Given> =>
      patiently(signal, () => call(`runs/${run}/output`, Given, { signal })),
    modelGrant: (run: string, alias: string, signal: AbortSignal): Promise<ModelGrant> =>
      patiently(signal, () =>
        call(`runs/${run}/models/${alias}/token`, ModelGrant, { method: 'POST', signal }),
      ),
    /** Once: the node has attempts of its own. */
    retrieve: (run: string, node: string, query: string, signal: AbortSignal): Promise<Passages> =>
      call(`runs/${run}/nodes/${node}/retrieve`, Passages, { method: 'POST', body: { query }, signal }),
    ...makeCalls((path, body, signal) =>
      patiently(signal, () => call(path, CallState, { method: 'POST', body, signal })),
    ),
    openItems: (
      run: string,
      node: string,
      attempt: number,
      all: number,
      signal: AbortSignal,
    ): Promise<OpenedMap> =>
      patiently(signal, () =>
        call(`runs/${run}/nodes/${node}/items?attempt=${attempt}&all=${all}`, OpenedMap, {
          method: 'POST',
          signal,
        }),
      ),
    endItems: (run: string, node: string, ends: ItemEnd[], signal: AbortSignal): Promise<void> =>
      patiently(signal, () =>
        call(`runs/${run}/nodes/${node}/items`, z.void(), { method: 'PUT', body: { ends }, signal }),
      ),
    givenForNode: (run: string, node: string, signal: AbortSignal): Promise<Given> =>
      patiently(signal, () => call(`runs/${run}/nodes/${node}/values`, Given, { signal })),
    callWorkflow: (
      run: string,
      node: string,
      attempt: number,
      input: string,
      signal: AbortSignal,
    ): Promise<Called> =>
      patiently(signal, () =>
        call(`runs/${run}/nodes/${node}/call?attempt=${attempt}`, Called, {
          method: 'POST',
          body: { input },
          signal,
        }),
      ),
    /** Once, and soon: a token that comes late is of no use. */
    giveTokens: (run: string, tokens: RunToken[]): Promise<void> =>
      call(`runs/${run}/tokens`, z.void(), {
        method: 'POST',
        body: { tokens },
        signal: AbortSignal.timeout(tokensWithinMs),
      }),
    giveOutput: (run: string, output: string, signal: AbortSignal): Promise<void> =>
      patiently(signal, () =>
        call(`runs/${run}/output`, z.void(), { method: 'PUT', body: { output }, signal }),
      ),
  }
}

/**
 * Calls a model at the gateway for models. It tries until there is an answer: a gateway that is away is no fault of the node, and
 * a repeated call costs nothing. Throws PlatformFault if an answer breaks off after some of its text was given.
 */
export function makeModelCaller(door: string): CallModel {
  const inTurn = makeQueue(modelCallsAtOnce) // a map has several under way
  return ({ path, body, token, key }, signal, onText) => {
    const asked = onText ? { ...body, stream: true } : body
    const sent = { method: 'POST', path, body: JSON.stringify(asked), headers: { [callKeyHeader]: key } }
    let isGiven = false
    const give = (text: string): void => {
      isGiven = true
      onText?.(text)
    }
    const read = onText ? readingOf(path, give) : readWhole
    const call = async (): Promise<Answer> => {
      const answer = await inTurn(() => send(door, sent, token, signal, null, read), signal).catch(
        (cause: unknown) => {
          signal.throwIfAborted()
          throw cause instanceof PlatformFault ? cause : unanswered(cause)
        },
      )
      if (isAway(answer)) throw unanswered()
      return answer
    }
    // Who watches the run would read the text twice.
    return patiently(signal, call, () => isGiven)
  }
}

const unanswered = (cause?: unknown): PlatformFault =>
  new PlatformFault(null, 'model_unavailable', 'The gateway for models does not answer', cause)

const unavailable = z.literal('unavailable')
/** In the form of OpenAI's errors, or of Anthropic's. */
const Unavailable = z.object({ error: z.object({ code: unavailable }).or(z.object({ type: unavailable })) })

/** The door's answer when it does not reach the gateway has no text. `unavailable` is a gateway without MongoDB, or at its end. */
const isAway = ({ status, said }: Answer): boolean =>
  (status >= 502 && said === '') || (status === 503 && Unavailable.safeParse(quietly(said)).success)

/** A server that does not stream answers as usual. */
const readingOf =
  (path: string, onText: (text: string) => void): Read =>
  async (answer) => {
    if (!String(answer.headers['content-type']).startsWith('text/event-stream')) return readWhole(answer)
    const streamed = readStreamed(path, onText)
    for await (const piece of bounded(answer)) streamed.take(piece)
    const { said, failed } = streamed.end()
    return { status: failed ? 502 : (answer.statusCode ?? 0), said }
  }

const patiently = <T>(signal: AbortSignal, work: () => Promise<T>, isOver = () => false): Promise<T> =>
  untilItWorks('a request of a node', work, {
    signal,
    log: quiet,
    hopeless: (error) => signal.aborted || isOver() || !(error instanceof PlatformFault) || error.permanent,
  })

/** What a node is refused is its own matter, and its activity says why it failed. */
const quiet = { warn: () => {} }

async function send(
  socketPath: string,
  {
    method,
    path,
    body,
    headers,
  }: { method: string; path: string; body: string | undefined; headers?: Record<string, string> },
  token: string,
  signal?: AbortSignal,
  withinMs: number | null = answersWithinMs,
  read: Read = readWhole,
): Promise<Answer> {
  const signals = [...(signal ? [signal] : []), ...(withinMs === null ? [] : [AbortSignal.timeout(withinMs)])]
  const asked = ask({
    socketPath,
    method,
    path,
    headers: {
      ...headers,
      authorization: `Bearer ${token}`,
      ...(body === undefined
        ? {}
        : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
    },
    signal: AbortSignal.any(signals),
  })
  asked.end(body)
  const [answer] = (await once(asked, 'response')) as [IncomingMessage]
  return read(answer)
}

interface Answer {
  status: number
  said: string
}

/** Values of 16 MiB as a text of JSON within JSON. A model's provider may answer with anything. */
const mostAnswerBytes = 34 * 1024 ** 2

async function* bounded(answer: IncomingMessage): AsyncGenerator<Buffer> {
  let bytes = 0
  for await (const piece of answer as AsyncIterable<Buffer>) {
    bytes += piece.length
    if (bytes > mostAnswerBytes) throw new PlatformFault(413, 'too_large', 'The answer is too large')
    yield piece
  }
}

type Read = (answer: IncomingMessage) => Promise<Answer>

async function readWhole(answer: IncomingMessage): Promise<Answer> {
  const pieces: Buffer[] = []
  for await (const piece of bounded(answer)) pieces.push(piece)
  return { status: answer.statusCode ?? 0, said: Buffer.concat(pieces).toString() }
}

const Refusal = z.object({ code: z.string(), title: z.string() })

function refusalIn(said: string): z.infer<typeof Refusal> {
  return Refusal.safeParse(quietly(said)).data ?? { code: 'refused', title: 'no reason is given' }
}

/** Undefined: it is no JSON. */
function quietly(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
