import type { Usage } from '../../models/llm/prices.ts'

// The two APIs of models, as their SDKs and command lines speak them: what is served, how an error looks, and where an
// answer says how many tokens it took.

export type Dialect = 'openai' | 'anthropic'

/** A refusal of the gateway itself, for the caller. */
export class CallRefused extends Error {
  override readonly name = 'CallRefused'
  readonly status: number
  readonly code: string
  readonly retryAfterSec: number | null

  constructor(
    status: number,
    code: string,
    message: string,
    more: { cause?: unknown; retryAfterSec?: number } = {},
  ) {
    super(message, { cause: more.cause })
    this.status = status
    this.code = code
    this.retryAfterSec = more.retryAfterSec ?? null
  }
}

export interface Endpoint {
  /** In records and metrics. */
  name: string
  method: 'GET' | 'POST'
  /** Below the base URL of a connector. */
  path: string
  /** Null: both have it. */
  dialect: Dialect | null
  /** Whether its calls take tokens. */
  metered: boolean
  /** The fields of the body that bound the answer, the first that is there. */
  mostTokens: readonly string[]
  /** Whether answers have tokens that the body does not bound. */
  writes: boolean
}

const reads = { method: 'POST', metered: true, mostTokens: [], writes: false } as const
const writes = { method: 'POST', metered: true, writes: true } as const

export const endpoints: readonly Endpoint[] = [
  {
    ...writes,
    name: 'chat_completions',
    path: '/chat/completions',
    dialect: 'openai',
    mostTokens: ['max_completion_tokens', 'max_tokens'],
  },
  { ...writes, name: 'responses', path: '/responses', dialect: 'openai', mostTokens: ['max_output_tokens'] },
  { ...writes, name: 'messages', path: '/messages', dialect: 'anthropic', mostTokens: ['max_tokens'] },
  { ...reads, name: 'embeddings', path: '/embeddings', dialect: 'openai' },
  // Not OpenAI's own: it is beside its API at those who have it (Cohere, Jina, Voyage, vLLM).
  { ...reads, name: 'rerank', path: '/rerank', dialect: 'openai' },
  { ...reads, name: 'count_tokens', path: '/messages/count_tokens', dialect: 'anthropic', metered: false },
  { ...reads, name: 'models', method: 'GET', path: '/models', dialect: null, metered: false },
]

/** The endpoint of a path below `/v1`; null if none is served there. */
export const endpointOf = (method: string, path: string): Endpoint | null =>
  endpoints.find((one) => one.method === method && one.path === path) ??
  (method === 'GET' && /^\/models\/[\w.:@/-]{1,200}$/.test(path) && !path.includes('..')
    ? { ...reads, name: 'models', method: 'GET', path, dialect: null, metered: false }
    : null)

/** The dialect in which a provider is asked; null if it has neither. */
export function dialectOf(provider: string): Dialect | null {
  if (provider === 'anthropic') return 'anthropic'
  return openaiLike.includes(provider) ? 'openai' : null
}
const openaiLike: readonly string[] = [
  'openai',
  'google',
  'mistral',
  'groq',
  'xai',
  'deepseek',
  'openrouter',
  'azure_openai',
  'openai_compatible',
]

/** A refusal in the form of the caller's API. */
export function errorBody(dialect: Dialect, { code, message, status }: CallRefused): object {
  if (dialect === 'anthropic')
    return { type: 'error', error: { type: anthropicTypes[code] ?? code, message } }
  return {
    error: { message, type: status < 500 ? 'invalid_request_error' : 'server_error', param: null, code },
  }
}

const anthropicTypes: Record<string, string> = {
  unauthenticated: 'authentication_error',
  invalid_request: 'invalid_request_error',
  not_found: 'not_found_error',
  request_too_large: 'request_too_large',
  too_many_calls: 'rate_limit_error',
}

/** What an answer has said so far; fields that it has not said are missing. */
export type SaidUsage = Partial<Usage>

/** Reads the usage in an answer, or in an event of one. Null if it says none, or none that can be. */
export function usageIn(dialect: Dialect, message: unknown): SaidUsage | null {
  const { usage, response, message: begun } = Object(message) as Record<string, unknown>
  const found = usage ?? Object(response).usage ?? Object(begun).usage
  if (typeof found !== 'object' || found === null) return null
  const said = found as Record<string, unknown>
  return dialect === 'anthropic' ? ofAnthropic(said) : ofOpenai(said)
}

function ofOpenai(said: Record<string, unknown>): SaidUsage {
  const details = Object(said['prompt_tokens_details'] ?? said['input_tokens_details'])
  // Embeddings and rankings have no output, and do not speak of it. Some say nothing but a total.
  const output = said['completion_tokens'] ?? said['output_tokens']
  return known({
    input_tokens:
      said['prompt_tokens'] ??
      said['input_tokens'] ??
      (output === undefined ? said['total_tokens'] : undefined),
    output_tokens: output,
    cache_read_tokens: details.cached_tokens,
  })
}

/** Its `input_tokens` leave out what was read from the cache and written to it. */
function ofAnthropic(said: Record<string, unknown>): SaidUsage {
  const { input_tokens, cache_read_input_tokens: read, cache_creation_input_tokens: written } = said
  const cached = Number(read ?? 0) + Number(written ?? 0)
  return known({
    input_tokens: typeof input_tokens === 'number' ? input_tokens + cached : input_tokens,
    output_tokens: said['output_tokens'],
    cache_read_tokens: read,
    cache_write_tokens: written,
  })
}

const known = (fields: Record<string, unknown>): SaidUsage =>
  Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined && value !== null),
  ) as SaidUsage

/** More than any model takes in one call. */
const mostOfOneCall = 50_000_000

/** Whether a provider's figures can be true. */
export const isCredible = (said: SaidUsage): boolean => {
  const figures = Object.values(said) as unknown[]
  return (
    figures.every(
      (one) => Number.isSafeInteger(one) && (one as number) >= 0 && (one as number) <= mostOfOneCall,
    ) && (said.cache_read_tokens ?? 0) + (said.cache_write_tokens ?? 0) <= (said.input_tokens ?? 0)
  )
}
