import type { IncomingMessage, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { newId } from '../../lib/ids.ts'
import type { Logger } from '../../lib/log.ts'
import type { CallEnd } from '../../models/llm/calls.ts'
import { type Answer, type Claim, claimAnswer, mostPlainBytes } from '../../models/llm/kept-answers.ts'
import type { IssuedGrant } from '../../models/llm/tokens.ts'
import { CallRefused, type Endpoint } from './dialects.ts'
import type { Asked } from './requests.ts'
import { callKeyHeader as header, nodeOfCall } from '../../lib/runner-protocol.ts'

// A step of a workflow's run that was killed runs again, and repeats its calls of models. The answer to the first call is
// kept, and given to the others.

const form = /^[\w./:-]{1,200}$/
const lookEveryMs = 250

export interface Repeats {
  /** The answer to the same call before. */
  kept: Answer | null
  /** Null: the answer to this call is not kept. */
  keeper: Keeper | null
  /** Of a run: the node that calls. Null: the call has no name. */
  node: string | null
}

const none: Repeats = { kept: null, keeper: null, node: null }

interface Waiting {
  request: IncomingMessage
  response: ServerResponse
  endpoint: Endpoint
  search: string
  /** How long to wait for a call that is making the answer. */
  mostMs: number
  /** What ends the wait, for a gateway that is stopped. */
  underWay: Set<AbortController>
  log: Logger
}

/**
 * The kept answer to a call with a key, or the right to make it, once no other call is making it. Throws CallRefused. A call
 * without a key asks nothing of MongoDB.
 */
export async function repeatsOf(waiting: Waiting, grant: IssuedGrant, asked: Asked): Promise<Repeats> {
  const { request, endpoint, search } = waiting
  const key = request.headers[header]
  if (key === undefined) return none
  const { tenant_id, purpose, connector_id } = grant
  if (purpose.kind !== 'run' && purpose.kind !== 'eval')
    throw new CallRefused(
      403,
      'call_key_not_allowed',
      `Only a workflow’s run, and its evals, may send \`${header}\``,
    )
  if (typeof key !== 'string' || !form.test(key))
    throw new CallRefused(400, 'invalid_request', `\`${header}\` has 1 to 200 of A-Z a-z 0-9 _ . / : -`)
  if (!endpoint.metered) return none
  const { method, path } = endpoint
  const of = { tenant_id, run_id: purpose.id, connector_id, key, method, path: `${path}${search}` }
  const claim = await claimed({ ...of, body: asked.bytes }, waiting)
  return { ...claim, node: purpose.kind === 'run' ? nodeOfCall(key) : null }
}

async function claimed(
  call: Parameters<typeof claimAnswer>[0],
  { response, mostMs, underWay, log }: Waiting,
): Promise<Pick<Repeats, 'kept' | 'keeper'>> {
  const stop = new AbortController()
  const onClose = () => stop.abort()
  const untilMs = Date.now() + mostMs
  underWay.add(stop)
  response.once('close', onClose)
  try {
    for (;;) {
      const found = await claimAnswer(call, newId())
      if (found && 'kept' in found) return { kept: found.kept, keeper: null }
      if (found) return { kept: null, keeper: makeKeeper(found.claim, log) }
      if (Date.now() > untilMs)
        throw new CallRefused(504, 'provider_timeout', 'The same call is under way, and has no answer yet')
      await sleep(lookEveryMs, undefined, { signal: stop.signal }).catch(() => {})
      if (response.destroyed) throw new CallRefused(499, 'caller_left', 'The caller has left')
      if (stop.signal.aborted) throw new CallRefused(503, 'unavailable', 'The gateway is about to stop')
    }
  } finally {
    underWay.delete(stop)
    response.off('close', onClose)
  }
}

/** Answers a call by what is kept. */
export function giveKept(response: ServerResponse, kept: Answer, end: CallEnd, begunMs: number): void {
  const { status, headers, body } = kept
  Object.assign(end, { status: 'succeeded', http_status: status, code: 'kept' })
  end.first_byte_ms = Date.now() - begunMs
  response.writeHead(status, { ...headers, 'content-length': body.length, 'x-keelson-answer': 'kept' })
  response.end(body)
}

/** Takes an answer on its way to the caller, and keeps it. */
export interface Keeper {
  call_id: string
  provider_key: string
  add(bytes: Buffer): void
  /** Keeps what was added, the first time. If MongoDB is away the caller gets it all the same, and `end` keeps it. */
  keep(status: number, headers: Answer['headers']): Promise<void>
  /** Keeps what is not kept yet, or else lets a repeated call make the answer. Says whether that is done. */
  end(): Promise<boolean>
}

/** Of the headers of an answer, those that are true of it at any time. */
const lasting = /^(content-type|cache-control|(x-)?request-id|openai-(model|version))$/

function makeKeeper(claim: Claim, log: Logger): Keeper {
  const { call_id, provider_key } = claim
  let chunks: Buffer[] = []
  let length = 0
  let waiting: Answer | null = null
  let keeping: Promise<boolean> | undefined
  async function keepWaiting(): Promise<boolean> {
    try {
      if (waiting) await claim.keep(waiting)
      waiting = null
      return true
    } catch (error) {
      log.error({ err: error, call_id }, 'an answer is not kept yet')
      return false
    }
  }
  return {
    call_id,
    provider_key,
    add(bytes) {
      length += bytes.length
      if (length > mostPlainBytes) chunks = []
      else if (bytes.length) chunks.push(bytes)
    },
    async keep(status, all) {
      if (!keeping && length <= mostPlainBytes) {
        const headers = Object.fromEntries(Object.entries(all).filter(([name]) => lasting.test(name)))
        waiting = { status, headers, body: Buffer.concat(chunks) }
        keeping = keepWaiting()
      }
      await keeping
    },
    async end() {
      if (!(await keepWaiting())) return false
      // If MongoDB is away, the lease ends.
      await claim.giveUp().catch(() => {})
      return true
    },
  }
}
