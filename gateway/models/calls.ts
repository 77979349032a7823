import type { IncomingMessage, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { newId } from '../../lib/ids.ts'
import type { Logger } from '../../lib/log.ts'
import { metrics } from '../../lib/metrics.ts'
import type { Outbound } from '../../lib/outbound.ts'
import { NotFound, Problem, Unauthenticated } from '../../lib/problem.ts'
import { type Credential, credentialOf } from '../../models/connectors/secrets.ts'
import { limitOf } from '../../models/identity/tenants.ts'
import { type CallEnd, costOf, inLedgers, noEnd } from '../../models/llm/calls.ts'
import { type Lack, ledgerOf, monthOf } from '../../models/llm/ledgers.ts'
import { beginCall, endCall, newCall, type OpenCall, reserveCall } from '../../models/llm/metering.ts'
import { partiesOf } from '../../models/llm/parties.ts'
import { noUsage, type PriceOf, type Usage } from '../../models/llm/prices.ts'
import { grantOf, type IssuedGrant } from '../../models/llm/tokens.ts'
import { CallRefused, type Dialect, dialectOf, type Endpoint, errorBody } from './dialects.ts'
import { answerOwn, ownHeaders } from './own-calls.ts'
import type { OwnModels } from './own-models.ts'
import { drainMs, headersBack, listen, relay, type Relayed } from './relay.ts'
import { giveKept, type Keeper, repeatsOf } from './repeats.ts'
import { type Asked, readAsked, reserves } from './requests.ts'
import type { Slots } from './slots.ts'
import { type Answered, send, type Target } from './upstream.ts'

// The story of one call: who calls, what is reserved, the request, the answer, the record.

export interface CallContext {
  outbound: Pick<Outbound, 'stream'>
  own: OwnModels
  priceOf: PriceOf
  slots: Slots
  log: Logger
  mostBodyBytes: number
  /** For all of a call. */
  callMs: number
  /** Until a stream begins, and between its pieces. */
  quietMs: number
  /** What ends the calls that are under way, for a gateway that is stopped. */
  underWay: Set<AbortController>
  /** Calls that have ended, and answers that are to be kept, while MongoDB has not taken them yet. */
  unrecorded: Set<Promise<void>>
}

/** From the end of a call to the moment when other gateways settle it. */
const graceMs = 30_000

interface Http {
  request: IncomingMessage
  response: ServerResponse
  endpoint: Endpoint
  /** In which a refusal is said. */
  dialect: Dialect
  search: string
}

/** For the operator, and not the caller or a provider. */
const ownFaults = ['unavailable', 'embedder_unavailable']

/** Carries out one call, and answers it. Never throws. */
export async function carryOut(context: CallContext, http: Http): Promise<void> {
  const { log } = context
  try {
    const grant = await authenticate(http.request)
    // Of the platform's own models, each tenant has as many as of a connector.
    const giveBack = context.slots.take(grant.connector_id ?? grant.tenant_id)
    try {
      await metered(context, http, grant, await readAsked(http.request, http.endpoint, context.mostBodyBytes))
    } finally {
      giveBack()
    }
  } catch (error) {
    const refused = asRefusal(error)
    if (ownFaults.includes(refused.code)) log.error({ err: error }, 'a call failed')
    refuse(http, refused)
  }
}

/** The token is where an SDK puts an API key. */
function authenticate({ headers }: IncomingMessage): Promise<IssuedGrant> {
  const [, bearer] = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '') ?? []
  const token = bearer ?? headers['x-api-key']
  if (typeof token !== 'string') throw new CallRefused(401, 'unauthenticated', 'The call has no token')
  return grantOf(token)
}

async function metered(context: CallContext, http: Http, grant: IssuedGrant, asked: Asked): Promise<void> {
  const { endpoint } = http
  const { kept, keeper, node } = await repeatsOf(
    { ...http, ...context, mostMs: context.callMs },
    grant,
    asked,
  )
  const begunMs = Date.now()
  const now = new Date(begunMs)
  const { connector_id, provider } = grant
  const whose = { connector_id, provider, base_url: '', model: asked.model }
  const one = newCall({
    ...whose,
    _id: keeper?.call_id ?? newId(),
    tenant_id: grant.tenant_id,
    purpose_kind: grant.purpose.kind,
    purpose_id: grant.purpose.id,
    node,
    month: monthOf(now),
    endpoint: endpoint.name,
    estimated_input_tokens: asked.input_tokens,
    // A call that takes none reserves none.
    reserved_tokens: kept ? 0 : asked.input_tokens + asked.output_tokens,
    lease_until: new Date(begunMs + context.callMs + drainMs + graceMs),
    created_at: now,
  })
  const end: CallEnd = { ...noEnd, ...whose, status: 'failed' }
  const record = recorder(context, one, end, begunMs)
  try {
    const { target, isLast } = await admitted(one, end, http.dialect, grant, asked)
    // The caller's next call would find its own reservation in the way.
    const beforeLast = async () => void (isLast && (await record(true)))
    const sent = { grant, asked, keeper, end, begunMs, beforeLast }
    if (kept) giveKept(http.response, kept, end, begunMs)
    else if (target) await forwarded(context, http, sent, target)
    else await answeredHere(context, http, sent)
  } catch (error) {
    const refused = asRefusal(error)
    end.http_status = refused.status
    end.code = refused.code
    throw error
  } finally {
    // Before a refusal is said, and at once, since the caller waits for it.
    if (!(await record(end.status === 'refused')) && one.isReserved) tryUntilDone(context, record)
    if (keeper) tryUntilDone(context, () => keeper.end())
  }
}

/**
 * Writes the call's record and reserves its tokens. Throws CallRefused, and what a connector throws. The platform's own
 * models have no target.
 */
async function admitted(
  one: OpenCall,
  end: CallEnd,
  dialect: Dialect,
  grant: IssuedGrant,
  asked: Asked,
): Promise<{ target: Target | null; isLast: boolean }> {
  end.status = 'refused'
  const { tenant_id, connector_id } = grant
  const [parties, begun] = await Promise.allSettled([partiesOf(tenant_id, connector_id), beginCall(one)])
  if (parties.status === 'rejected') throw parties.reason
  if (begun.status === 'rejected') throw begun.reason
  const { tenant, connector } = parties.value
  one.isVoid = tenant?.status !== 'active'
  if (tenant?.status !== 'active')
    throw new CallRefused(401, 'unauthenticated', 'The token’s tenant is not active')
  const target =
    connector_id === null
      ? null
      : { connector_id, credential: await credentialFor(connector, end, dialect), model: one.call.model }
  const reserved = await reservedFor(one, limitOf(tenant, 'max_llm_tokens_month'))
  if (reserved.lack !== null) throw refusalFor(reserved.lack, asked)
  end.status = 'failed'
  return { target, isLast: reserved.isLast }
}

async function credentialFor(
  connector: Parameters<typeof credentialOf>[0] | null,
  end: CallEnd,
  dialect: Dialect,
): Promise<Credential> {
  if (!connector) throw new NotFound('connector')
  const credential = await credentialOf(connector)
  end.base_url = credential.base_url
  if (dialectOf(credential.provider) === dialect) return credential
  const message = `The connector’s provider, ${credential.provider}, has no such API`
  throw new CallRefused(404, 'not_found', message)
}

/** A call that takes no tokens only needs a purpose that goes on. */
async function reservedFor(
  one: OpenCall,
  monthLimit: number,
): Promise<{ lack: Lack } | { lack: null; isLast: boolean }> {
  if (one.call.reserved_tokens) return reserveCall(one, monthLimit)
  const { tenant_id, purpose } = inLedgers(one.call)
  const ledger = await ledgerOf(tenant_id, purpose)
  return ledger && !ledger.closed_at ? { lack: null, isLast: false } : { lack: 'purpose_closed' }
}

/** 403: clients try again after a 429, and a budget does not come back by itself. */
function refusalFor(lack: Lack, asked: Asked): CallRefused {
  if (lack === 'purpose_closed')
    return new CallRefused(401, 'unauthenticated', 'The token’s purpose has ended')
  const whose = lack === 'month_limit' ? 'The tenant’s tokens of this month are' : 'The budget is'
  return new CallRefused(
    403,
    'budget_exceeded',
    `${whose} spent, or reserved by calls under way. ${reserves(asked)}`,
  )
}

interface Sent {
  grant: IssuedGrant
  asked: Asked
  /** Null: the answer is not kept. */
  keeper: Keeper | null
  end: CallEnd
  begunMs: number
  beforeLast: () => Promise<void>
}

async function answeredHere(
  { own, callMs, underWay }: CallContext,
  { response, endpoint, dialect }: Http,
  { grant, asked, keeper, end, begunMs, beforeLast: beforeAny }: Sent,
): Promise<void> {
  const stop = new AbortController()
  underWay.add(stop)
  try {
    const party = grant.tenant_id
    const beforeLast = async (answer: Buffer): Promise<void> => {
      keeper?.add(answer)
      await Promise.all([beforeAny(), keeper?.keep(200, ownHeaders)])
    }
    const call = { models: own, endpoint, dialect, asked, party, response, end, begunMs, stop, beforeLast }
    await answerOwn({ ...call, mostMs: callMs })
  } finally {
    underWay.delete(stop)
  }
}

async function forwarded(context: CallContext, http: Http, sent: Sent, first: Target): Promise<void> {
  const { grant, asked, keeper, end, begunMs } = sent
  const { request, response, endpoint, dialect, search } = http
  const stop = new AbortController()
  const timer = setTimeout(() => stop.abort(), context.callMs)
  context.underWay.add(stop)
  const listener = listen(response, () => stop.abort())
  try {
    const answered = await send(first, {
      outbound: context.outbound,
      endpoint,
      asked,
      headers: request.headers,
      providerKey: keeper?.provider_key ?? null,
      search,
      grant,
      // An answer that is no stream begins when it is whole.
      headWithinMs: asked.streams ? context.quietMs : context.callMs,
      pieceWithinMs: context.quietMs,
      signal: stop.signal,
      onAttempt: ({ connector_id, credential: { provider, base_url }, model }) => {
        Object.assign(end, { connector_id, provider, base_url, model })
        end.attempts++
      },
    })
    const beforeLast = async (relayed: Relayed): Promise<void> => {
      noteAnswer(end, answered, relayed, asked)
      const keeping = isGood(answered, relayed)
        ? keeper?.keep(answered.answer.status, headersBack(answered))
        : null
      await Promise.all([sent.beforeLast(), keeping])
    }
    const relaying = { dialect, begunMs, listener, copy: keeper, beforeLast }
    const relayed = await relay(answered, response, relaying)
    noteAnswer(end, answered, relayed, asked)
  } catch (error) {
    if (listener.left()) end.status = 'interrupted'
    // It may have been worked on, and the provider takes money for the input at least.
    if (error instanceof CallRefused && error.code === 'provider_timeout')
      countEstimate(end, asked.input_tokens, 0)
    throw error
  } finally {
    clearTimeout(timer)
    context.underWay.delete(stop)
    listener.end()
  }
}

/** Whether a repeated call may have the same answer: it is no failure, and came to its end. */
const isGood = ({ answer: { status } }: Answered, { tap, broken }: Relayed): boolean =>
  status >= 200 && status < 300 && tap.isWhole && !broken && !tap.hasFailed

/** How the answer ended, and what it took. */
function noteAnswer(end: CallEnd, { answer }: Answered, relayed: Relayed, asked: Asked): void {
  const { tap, broken, left, firstByteMs } = relayed
  end.http_status = answer.status
  end.first_byte_ms = firstByteMs
  if (answer.status >= 400) {
    end.code = 'provider_error'
    return
  }
  end.status = left ? 'interrupted' : broken ? 'failed' : 'succeeded'
  end.code = end.status === 'failed' ? 'provider_broke_off' : null
  if (asked.input_tokens === 0) return // its endpoint takes no tokens
  const said = tap.usage()
  if (tap.lied) count(end, reservedOf(asked), 'reservation')
  else if (said?.input_tokens !== undefined && !broken) count(end, said, 'provider')
  else {
    // Of vectors and rankings, the answer is no text.
    const textBytes = asked.output_tokens ? tap.textBytes : 0
    countEstimate(end, said?.input_tokens ?? asked.input_tokens, textBytes, said?.output_tokens)
  }
}

const reservedOf = ({ input_tokens, output_tokens }: Asked): Partial<Usage> => ({
  input_tokens,
  output_tokens,
})

function count(end: CallEnd, usage: Partial<Usage>, by: NonNullable<CallEnd['counted_by']>): void {
  Object.assign(end, { ...noUsage, ...usage, counted_by: by })
}

/** As for inputs. */
const bytesPerToken = 3

/** Of an answer that broke off: what it said so far may be the figure of its beginning. */
function countEstimate(end: CallEnd, input_tokens: number, textBytes: number, said = 0): void {
  count(
    end,
    { input_tokens, output_tokens: Math.max(said, Math.ceil(textBytes / bytesPerToken)) },
    'estimate',
  )
}

/** Records and settles a call, once, and says whether that is done. */
function recorder(
  { priceOf, log }: CallContext,
  one: OpenCall,
  end: CallEnd,
  begunMs: number,
): (atOnce?: boolean) => Promise<boolean> {
  let isDone = false
  return async (atOnce = false) => {
    if (isDone) return true
    if (end.duration_ms === null) {
      end.duration_ms = Date.now() - begunMs
      if (end.counted_by) Object.assign(end, costOf(priceOf, end, end))
      metrics.modelTokens.inc({ direction: 'in' }, end.input_tokens)
      metrics.modelTokens.inc({ direction: 'out' }, end.output_tokens)
    }
    try {
      await endCall(one, end, atOnce)
      isDone = true
    } catch (error) {
      const { _id: call_id, tenant_id } = one.call
      log.error({ err: error, call_id, tenant_id }, 'a call is not recorded yet')
    }
    return isDone
  }
}

const againAfterMs = 1_000

/**
 * Goes on until MongoDB takes it. A crash may have taken a call's record away, and then no other gateway knows the call; an
 * answer that is to be kept is nowhere else.
 */
function tryUntilDone({ underWay, unrecorded }: CallContext, attempt: () => Promise<boolean>): void {
  const stop = new AbortController()
  const { signal } = stop
  const recorded = (async () => {
    while (!signal.aborted && !(await attempt()))
      await sleep(againAfterMs, undefined, { signal }).catch(() => {})
  })()
  underWay.add(stop)
  unrecorded.add(recorded)
  void recorded.finally(() => {
    underWay.delete(stop)
    unrecorded.delete(recorded)
  })
}

/** In words for the caller: nothing of the database, the host or the provider's key. */
function asRefusal(error: unknown): CallRefused {
  if (error instanceof CallRefused) return error
  if (error instanceof Unauthenticated) return new CallRefused(401, 'unauthenticated', error.message)
  if (error instanceof NotFound)
    return new CallRefused(401, 'unauthenticated', 'The token’s connector or purpose no longer exists')
  if (error instanceof Problem) return new CallRefused(error.status, error.code, error.message)
  return new CallRefused(503, 'unavailable', 'The gateway cannot take the call now', {
    cause: error,
    retryAfterSec: 1,
  })
}

function refuse({ response, dialect }: Http, refused: CallRefused): void {
  if (response.headersSent || response.destroyed) return void response.destroy()
  const { status, retryAfterSec } = refused
  response.writeHead(status, {
    'content-type': 'application/json',
    ...(retryAfterSec === null ? {} : { 'retry-after': String(retryAfterSec) }),
    // SDKs heed it: what is refused for good is not asked again.
    ...(status < 429 ? { 'x-should-retry': 'false' } : {}),
    // The rest of a body that was not read.
    ...(status === 413 ? { connection: 'close' } : {}),
  })
  response.end(JSON.stringify(errorBody(dialect, refused)))
}
