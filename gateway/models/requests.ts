import type { IncomingMessage } from 'node:http'
import { unboundedAnswer } from '../../lib/ai/bounds.ts'
import { CallRefused, type Endpoint } from './dialects.ts'

// The body of a call: its bytes go on as they are. Read from it: the model, whether it streams, and the most tokens that it
// may take.

export interface Asked {
  bytes: Buffer
  fields: Record<string, unknown>
  model: string
  streams: boolean
  /** Tokens of the input, rather too many. */
  input_tokens: number
  /** The most tokens of the answer. */
  output_tokens: number
  /** The call does not bound its answer. */
  is_unbounded: boolean
}

const nothing: Asked = {
  bytes: Buffer.alloc(0),
  fields: {},
  model: '',
  streams: false,
  input_tokens: 0,
  output_tokens: 0,
  is_unbounded: false,
}

/** Reads a call. Throws CallRefused. */
export async function readAsked(
  request: IncomingMessage,
  endpoint: Endpoint,
  mostBytes: number,
): Promise<Asked> {
  if (endpoint.method === 'GET') return nothing
  return askedIn(await readBody(request, mostBytes), endpoint)
}

async function readBody(request: IncomingMessage, mostBytes: number): Promise<Buffer> {
  const tooLarge = () =>
    new CallRefused(413, 'request_too_large', `The body has more than ${mostBytes} bytes`)
  if (Number(request.headers['content-length'] ?? 0) > mostBytes) throw tooLarge()
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length
    if (length > mostBytes) throw tooLarge()
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

const mostOutput = 10_000_000
const mostChoices = 128

/** Throws CallRefused. */
export function askedIn(bytes: Buffer, endpoint: Endpoint): Asked {
  const fields = parsed(bytes)
  const { model, stream, n } = fields
  if (typeof model !== 'string' || model.length > 200 || model === '')
    throw new CallRefused(400, 'invalid_request', 'The body names no model')
  const bounds = endpoint.mostTokens
    .map((name) => fields[name])
    .find((one) => one !== undefined && one !== null)
  const is_unbounded = !isWhole(bounds, mostOutput)
  const bound = is_unbounded ? unboundedAnswer.usual : bounds
  const choices = isWhole(n, mostChoices) ? n : 1
  return {
    bytes,
    fields,
    model,
    streams: stream === true,
    input_tokens: endpoint.metered ? estimateInput(bytes.length, fields) : 0,
    output_tokens: endpoint.writes ? bound * choices : 0,
    is_unbounded: endpoint.writes && is_unbounded,
  }
}

/** What a call takes of its budgets until it has ended. */
export const reserves = ({ input_tokens, output_tokens, is_unbounded }: Asked): string => {
  const why = is_unbounded
    ? `, ${output_tokens} of them because it does not bound its answer (max_tokens)`
    : ''
  return `This call reserves ${input_tokens + output_tokens} tokens${why}`
}

const isWhole = (value: unknown, most: number): value is number =>
  Number.isSafeInteger(value) && (value as number) > 0 && (value as number) <= most

function parsed(bytes: Buffer): Record<string, unknown> {
  let body: unknown
  try {
    body = JSON.parse(bytes.toString())
  } catch (cause) {
    throw new CallRefused(400, 'invalid_request', 'The body is not JSON', { cause })
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new CallRefused(400, 'invalid_request', 'The body is not a JSON object')
  return body as Record<string, unknown>
}

/** English has some four bytes a token, code three; a character of Chinese has three, and seldom more than a token. */
const bytesPerToken = 3
/** Images, sounds and files have far fewer tokens than bytes. */
const mediaBytesPerToken = 8
/** The most for which a provider counts one image. */
const tokensOfImage = 6_000

/** The tokens of an input, by its bytes: rather too many. */
function estimateInput(bytes: number, fields: Record<string, unknown>): number {
  const media = { bytes: 0, tokens: 0 }
  countMedia(fields, media)
  return Math.ceil((bytes - media.bytes) / bytesPerToken) + media.tokens
}

function countMedia(value: unknown, media: { bytes: number; tokens: number }, depth = 0): void {
  if (typeof value !== 'object' || value === null || depth > 20) return
  const { media_type } = value as { media_type?: unknown }
  for (const part of Object.values(value)) {
    if (typeof part === 'string') addMedia(part, String(media_type), media)
    else countMedia(part, media, depth + 1)
  }
}

const base64 = /^(data:([\w.+/-]{0,80});base64,)?[A-Za-z0-9+/_-]{200}/

function addMedia(text: string, mediaType: string, media: { bytes: number; tokens: number }): void {
  if (text.length < 2_000) return
  const [begin, , type = mediaType] = base64.exec(text) ?? []
  if (begin === undefined) return
  const tokens = Math.ceil(text.length / mediaBytesPerToken)
  media.bytes += text.length
  media.tokens += type.startsWith('image/') ? Math.min(tokens, tokensOfImage) : tokens
}

/**
 * The body to send. A chat that streams tells its usage only if it is asked to: then `hidden`, unless the caller asked
 * too. Without a change, the caller's own bytes.
 */
export function bodyFor(
  { name }: Pick<Endpoint, 'name'>,
  { bytes, fields, streams }: Asked,
  model: string | null,
): { body: Buffer; hidden: boolean } {
  const options = Object(fields['stream_options']) as Record<string, unknown>
  const hidden = name === 'chat_completions' && streams && options['include_usage'] !== true
  if (model === null && !hidden) return { body: bytes, hidden }
  const wanted = { stream_options: { ...options, include_usage: true } }
  if (model === null && !('stream_options' in fields)) return { body: insert(bytes, wanted), hidden }
  const changed = { ...fields, ...(hidden ? wanted : {}), ...(model === null ? {} : { model }) }
  return { body: Buffer.from(JSON.stringify(changed)), hidden }
}

/** At the beginning, so that all other bytes stay as they are. The object has fields: it names a model. */
function insert(bytes: Buffer, field: object): Buffer {
  const at = bytes.indexOf('{') + 1
  const text = JSON.stringify(field).slice(1, -1)
  return Buffer.concat([bytes.subarray(0, at), Buffer.from(`${text},`), bytes.subarray(at)])
}
