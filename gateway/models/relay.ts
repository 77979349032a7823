import type { ServerResponse } from 'node:http'
import type { Answered } from './upstream.ts'
import type { Dialect } from './dialects.ts'
import { type Tap, tapEvents, tapJson } from './tap.ts'

// An answer on its way to the caller. When the caller leaves, the rest is still read for a while: it says what the call
// took, and the provider takes money for it.

const bounds = {
  /** How long an answer is read on for nobody. */
  drainMs: 30_000,
  drainBytes: 8 * 1024 ** 2,
  /** Of an answer that says why there is none. */
  errorBytes: 1024 ** 2,
}
export const drainMs = bounds.drainMs

/** How an answer went. */
export interface Relayed {
  tap: Tap
  firstByteMs: number
  /** The provider ended it before its end, or nobody waited for the end. */
  broken: boolean
  /** The caller had left before the last of it. */
  left: boolean
}

interface Relaying {
  dialect: Dialect
  begunMs: number
  listener: Listener
  /** Gets what goes to the caller, whether they are still there or not. */
  copy: { add(bytes: Buffer): void } | null
  /** Runs before the last of an answer goes to the caller. */
  beforeLast: (relayed: Relayed) => Promise<void>
}

const passedBack =
  /^(content-type|content-encoding|cache-control|retry-after(-ms)?|(x-)?request-id|x-should-retry|openai-(model|processing-ms|version)|(x|anthropic)-ratelimit-[\w-]+)$/

export function headersBack({ answer }: Answered): Record<string, string | string[]> {
  const all = Object.entries(answer.headers).filter(
    (header): header is [string, string | string[]] => passedBack.test(header[0]) && header[1] !== undefined,
  )
  return Object.fromEntries(all)
}

/**
 * Passes a provider's answer on to the caller. Resolves when the provider has ended its answer, or when enough of it was
 * read for a caller who has left.
 */
export async function relay(
  answered: Answered,
  response: ServerResponse,
  relaying: Relaying,
): Promise<Relayed> {
  const { answer, hidden } = answered
  const { dialect, begunMs, listener, copy, beforeLast } = relaying
  const isStream = String(answer.headers['content-type']).startsWith('text/event-stream')
  const tap = isStream ? tapEvents(dialect, hidden) : tapJson(dialect)
  if (answer.status >= 400) return relayError(answered, response, tap, relaying)

  const relayed: Relayed = { tap, firstByteMs: 0, broken: false, left: false }
  const { 'content-length': length } = answer.headers
  // Of a stream an event may be taken out.
  const itsLength = isStream || typeof length !== 'string' ? {} : { 'content-length': length }
  if (!listener.left()) response.writeHead(answer.status, { ...headersBack(answered), ...itsLength })
  for await (const chunk of piecesOf(answer.body, () => (relayed.broken = true))) {
    relayed.firstByteMs ||= Date.now() - begunMs
    if (!tap.isWhole) relayed.left = listener.left()
    const bytes = tap.take(chunk)
    copy?.add(bytes)
    if (tap.isWhole) await beforeLast(relayed)
    await listener.write(bytes)
  }
  if (!tap.isWhole) relayed.left = listener.left()
  const bytes = tap.end()
  copy?.add(bytes)
  // What follows the end of a stream is of no account.
  if (isStream && tap.isWhole) relayed.broken = false
  await beforeLast(relayed)
  // A caller must not take half an answer for a whole one.
  if (relayed.broken) response.destroy()
  else {
    await listener.write(bytes)
    response.end()
  }
  return relayed
}

async function* piecesOf(body: AsyncIterable<Buffer>, onBreak: () => void): AsyncGenerator<Buffer> {
  try {
    yield* body
  } catch {
    onBreak()
  }
}

export type Listener = ReturnType<typeof listen>

/**
 * The caller as one who listens: written to while they do. `stop` is called when they have left, and enough was read on
 * for nobody.
 */
export function listen(response: ServerResponse, stop: () => void) {
  let timer: NodeJS.Timeout | undefined
  let drained = 0
  const left = (): boolean => (response.destroyed || response.closed) && !response.writableFinished
  const onClose = () => {
    if (left()) timer ??= setTimeout(stop, bounds.drainMs)
  }
  response.once('close', onClose)
  return {
    left,
    async write(bytes: Buffer): Promise<void> {
      if (left()) {
        drained += bytes.length
        if (drained > bounds.drainBytes) stop()
      } else if (bytes.length && !response.write(bytes)) await writable(response)
    },
    end() {
      clearTimeout(timer)
      response.off('close', onClose)
    },
  }
}

const writable = (response: ServerResponse): Promise<void> =>
  new Promise((resolve) => {
    const done = () => {
      response.off('drain', done).off('close', done)
      resolve()
    }
    response.on('drain', done).on('close', done)
  })

/** An error is short, and passes without the provider's key, which some servers repeat. */
async function relayError(
  answered: Answered,
  response: ServerResponse,
  tap: Tap,
  { begunMs, listener, beforeLast }: Relaying,
): Promise<Relayed> {
  const { answer, target } = answered
  const relayed: Relayed = { tap, firstByteMs: Date.now() - begunMs, broken: false, left: listener.left() }
  const text = await textOf(answer.body)
  const { 'content-encoding': encoding, ...headers } = headersBack(answered)
  await beforeLast(relayed)
  if (!listener.left())
    response
      .writeHead(answer.status, headers)
      // What cannot be read could hide the key.
      .end(encoding ? '' : withoutSecrets(text, target.credential.headers))
  return relayed
}

/** As much of it as comes. */
async function textOf(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = []
  let length = 0
  try {
    for await (const chunk of body) {
      chunks.push(chunk)
      length += chunk.length
      if (length > bounds.errorBytes) break
    }
  } catch {
    // The status says it all the same.
  }
  return Buffer.concat(chunks).toString()
}

const shortestSecret = 8

function withoutSecrets(text: string, headers: Record<string, string>): string {
  const secrets = Object.values(headers)
    .map((value) => value.replace(/^(Bearer|token) /, ''))
    .filter((value) => value.length >= shortestSecret)
  return secrets.reduce((clean, secret) => clean.replaceAll(secret, '[secret]'), text)
}
