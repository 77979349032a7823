import type { IncomingHttpHeaders } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { AddressNotAllowed, NoAnswer, type Outbound, type OutboundStream } from '../../lib/outbound.ts'
import { Problem } from '../../lib/problem.ts'
import { atOpenaiApi, type Credential, secretOf } from '../../models/connectors/secrets.ts'
import type { Fallback, Grant } from '../../models/llm/tokens.ts'
import { CallRefused, type Dialect, dialectOf, type Endpoint } from './dialects.ts'
import { type Asked, bodyFor } from './requests.ts'

// The request to a provider: with its key instead of the caller's token, and again, or to another connector, while nothing
// of an answer has gone to the caller.

/** Where a call goes. */
export interface Target {
  connector_id: string
  credential: Credential
  model: string
}

/** An answer whose head is here. */
export interface Answered {
  target: Target
  answer: OutboundStream
  /** The caller did not ask for the event with the usage. */
  hidden: boolean
}

export interface Sending {
  outbound: Pick<Outbound, 'stream'>
  endpoint: Endpoint
  asked: Asked
  headers: IncomingHttpHeaders
  /** Names the call to the provider, instead of the caller's `Idempotency-Key`. */
  providerKey: string | null
  /** The query of the caller's URL, with its question mark. */
  search: string
  grant: Grant
  headWithinMs: number
  pieceWithinMs: number
  signal: AbortSignal
  /** Learns of each request before it is sent. */
  onAttempt: (target: Target) => void
}

/** The requests to one connector: one more after a failure that may pass. */
const attemptsEach = 2
const firstPauseMs = 200
/** A provider that asks for more patience gets no second request. */
const longestPauseMs = 3_000

/**
 * The first usable answer, or the last failure as the provider gave it. Throws CallRefused if no provider answers.
 */
export async function send(first: Target, sending: Sending): Promise<Answered> {
  const { grant, signal } = sending
  const dialect = dialectOf(first.credential.provider)
  const targets: (Fallback | Target)[] = [first, ...grant.fallbacks]
  let failed: Answered | CallRefused | null = null
  let failures = 0
  for (const next of targets) {
    const target = 'credential' in next ? next : await fallbackTarget(next, sending, dialect)
    if (!target) continue
    for (let attempt = 1; attempt <= attemptsEach; attempt++) {
      discard(failed)
      const got = await once(target, target !== first, sending, failures)
      if (!mayPass(got)) return taken(got)
      failed = got
      if (!(got instanceof CallRefused)) failures++
      const pauseMs = pauseAfter(got, attempt)
      if (attempt === attemptsEach || pauseMs > longestPauseMs || signal.aborted) break
      await sleep(pauseMs, undefined, { signal }).catch(() => {})
    }
    if (signal.aborted) break
  }
  return taken(failed ?? new CallRefused(502, 'provider_unavailable', 'The provider does not answer'))
}

function discard(failed: Answered | CallRefused | null): void {
  if (failed && !(failed instanceof CallRefused)) failed.answer.body.destroy()
}

function taken(got: Answered | CallRefused): Answered {
  if (got instanceof CallRefused) throw got
  return got
}

/** The fallback as a target; null if it cannot be used, so that the next one is tried. */
async function fallbackTarget(
  { connector_id, model }: Fallback,
  { grant, asked }: Sending,
  dialect: Dialect | null,
): Promise<Target | null> {
  try {
    const credential = await secretOf(grant.tenant_id, connector_id)
    const usable = dialectOf(credential.provider) === dialect
    return usable ? { connector_id, credential, model: model ?? asked.model } : null
  } catch (error) {
    if (error instanceof Problem) return null
    throw error
  }
}

/** `failures`: how many answers to this call have been failures. Under the same key a provider may repeat them. */
async function once(
  target: Target,
  isFallback: boolean,
  sending: Sending,
  failures: number,
): Promise<Answered | CallRefused> {
  const { outbound, endpoint, asked, headers, providerKey, search, signal } = sending
  const { headWithinMs, pieceWithinMs } = sending
  const { model } = target
  const credential = atOpenaiApi(target.credential)
  sending.onAttempt(target)
  const { body, hidden } = bodyFor(endpoint, asked, isFallback && model !== asked.model ? model : null)
  try {
    const answer = await outbound.stream(urlOf(credential, endpoint, model, search), {
      method: endpoint.method,
      headers: {
        ...headersFor(headers, credential),
        ...(providerKey !== null && {
          'idempotency-key': failures ? `${providerKey}-${failures}` : providerKey,
        }),
      },
      ...(endpoint.method === 'POST' ? { body } : {}),
      headWithinMs,
      pieceWithinMs,
      signal,
    })
    return { target, answer, hidden }
  } catch (error) {
    return refusalOf(error)
  }
}

/** No answer, in words without the provider's address. */
function refusalOf(error: unknown): CallRefused {
  if (error instanceof AddressNotAllowed) return new CallRefused(403, 'address_not_allowed', error.message)
  if (!(error instanceof NoAnswer)) throw error
  const message = `The provider: ${error.message}`
  return error.timedOut
    ? new CallRefused(504, 'provider_timeout', message, { cause: error })
    : new CallRefused(502, 'provider_unavailable', message, { cause: error })
}

/**
 * Whether another request may help. Not after a time-out: the provider may still work on the first, and takes money for
 * both.
 */
const mayPass = (got: Answered | CallRefused): boolean =>
  got instanceof CallRefused
    ? got.code === 'provider_unavailable'
    : got.answer.status === 429 || got.answer.status >= 500

function pauseAfter(got: Answered | CallRefused, attempt: number): number {
  const usual = firstPauseMs * 2 ** (attempt - 1) * (0.75 + Math.random() / 2)
  if (got instanceof CallRefused) return usual
  const { 'retry-after-ms': ms, 'retry-after': sec } = got.answer.headers
  const asked = typeof ms === 'string' ? Number(ms) : typeof sec === 'string' ? Number(sec) * 1000 : 0
  return Number.isFinite(asked) && asked > usual ? asked : usual
}

/** Azure names the model in the path, except for responses, and its version in the query. */
function urlOf(
  { provider, base_url, api_version }: Credential,
  endpoint: Endpoint,
  model: string,
  search: string,
) {
  if (provider !== 'azure_openai') return `${base_url}${endpoint.path}${search}`
  const inPath = ['chat_completions', 'embeddings'].includes(endpoint.name)
  const place = inPath ? `/openai/deployments/${encodeURIComponent(model)}` : '/openai'
  return `${base_url}${place}${endpoint.path}?api-version=${encodeURIComponent(api_version ?? '')}`
}

const passedOn = /^(accept|content-type|user-agent|idempotency-key|anthropic-(version|beta)|openai-beta)$/

/** What a provider may know of the caller's headers, which are never a token, a cookie or an address. */
function headersFor(headers: IncomingHttpHeaders, credential: Credential): Record<string, string> {
  const all = Object.entries(headers).filter(
    (header): header is [string, string] => passedOn.test(header[0]) && typeof header[1] === 'string',
  )
  const passed = Object.fromEntries(all)
  const version = passed['anthropic-version']
  return {
    ...passed,
    'accept-encoding': 'identity', // compressed, its usage could not be read
    ...credential.headers,
    // Not the connector's usual one: the caller's SDK was made for this version.
    ...(version && credential.provider === 'anthropic' ? { 'anthropic-version': version } : {}),
  }
}
