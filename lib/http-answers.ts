import { isDeeperThan, runBounds } from './ai/bounds.ts'
import { AddressNotAllowed, NoAnswer, type Outbound, type OutboundRequest } from './outbound.ts'
import { CallFault } from './runner-calls.ts'

// Requests that workflows make by HTTP, behind the guard of lib/outbound.ts, and what they make of the answer.

/** What expressions see of an answer. */
export interface HttpAnswer {
  status: number
  /** By their names in lower case; several of one name are joined by commas. */
  headers: Record<string, string>
  /** JSON if the answer says that it is, else a text. Null: it is empty. */
  body: unknown
}

/** Of the body. */
const mostBytes = 8 * 1024 ** 2

/** Sends a request. Redirects are answers. Throws CallFault, whose text has neither the URL nor anything of the answer. */
export async function askHttp(
  guard: Pick<Outbound, 'fetch'>,
  url: string,
  asked: Omit<OutboundRequest, 'mostBytes'>,
): Promise<HttpAnswer> {
  const headers = { 'user-agent': 'Keelson', accept: '*/*', ...asked.headers, 'accept-encoding': 'identity' }
  const answer = await guard
    .fetch(url, { ...asked, headers, mostBytes: mostBytes + 1 })
    .catch((error: unknown) => {
      throw noAnswer(error)
    })
  if (answer.body.length > mostBytes)
    throw new CallFault('too_large', `The answer has more than ${mostBytes / 1024 ** 2} MiB`, {
      permanent: true,
    })
  const its = Object.entries(answer.headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name.toLowerCase(), [value].flat().join(', ')] as const],
  )
  const all = Object.fromEntries(its)
  return {
    status: answer.status,
    headers: all,
    body: bodyOf(answer.body.toString(), all['content-type'] ?? ''),
  }
}

function noAnswer(cause: unknown): CallFault {
  if (cause instanceof AddressNotAllowed)
    return new CallFault(cause.code, cause.message, { permanent: true, cause })
  if (!(cause instanceof NoAnswer)) throw cause
  const code = cause.timedOut ? 'no_answer_in_time' : 'no_answer'
  return new CallFault(code, `The server gave no answer. ${cause.message}`, { permanent: false, cause })
}

function bodyOf(text: string, contentType: string): unknown {
  if (text === '') return null
  const [type = ''] = contentType.toLowerCase().split(';')
  if (!/^application\/([\w.-]+\+)?json$/.test(type.trim())) return text
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch (cause) {
    throw new CallFault('unreadable_answer', 'The answer claims to be JSON, but is not', {
      permanent: false,
      cause,
    })
  }
  needShallow(body)
  return body
}

/** Throws CallFault for JSON that is too deep for an output: much deeper, it could not even be written. */
export function needShallow(value: unknown): void {
  if (!isDeeperThan(value, runBounds.depth - 1)) return
  const message = `The answer has objects and lists nested more than ${runBounds.depth - 1} deep`
  throw new CallFault('too_large', message, { permanent: true })
}

const mayWorkLater = new Set([408, 425, 429])

/** Throws CallFault `http_<status>` for an answer of 400 and more: another attempt may help with 408, 425, 429 and 5xx. */
export function needSuccess({ status }: Pick<HttpAnswer, 'status'>): void {
  if (status < 400) return
  const permanent = status < 500 && !mayWorkLater.has(status)
  throw new CallFault(`http_${status}`, `The server answered with status ${status}`, { permanent })
}

/** Headers that belong to the connection, which no author sets. */
const ofConnection =
  /^(host|connection|content-length|transfer-encoding|te|trailer|upgrade|expect|keep-alive|accept-encoding|proxy-.*)$/i

/** Throws CallFault if a header cannot be sent. The text has its name alone: the value may be a secret. */
export function needHeaders(headers: Record<string, string>): void {
  for (const [name, value] of Object.entries(headers)) {
    const why = ofConnection.test(name)
      ? 'is set by the platform'
      : /^[\t\x20-\x7e\x80-\xff]*$/.test(value)
        ? null
        : 'has characters that a header cannot have'
    if (why) throw new CallFault('invalid_request', `The header ${name} ${why}`, { permanent: true })
  }
}

/** JSON of a body as it is sent: a text as it is, and all else as JSON. */
export function sentBody(json: string | null): { body: string; type: string } | null {
  if (json === null) return null
  const value: unknown = JSON.parse(json)
  return typeof value === 'string'
    ? { body: value, type: 'text/plain; charset=utf-8' }
    : { body: json, type: 'application/json' }
}
