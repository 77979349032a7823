import { Agent, errors, request } from 'undici'
import type { Embedded, EmbedderFacts } from '../../drivers/embedders.ts'
import { Problem } from '../../lib/problem.ts'
import type { Purpose } from '../llm/purposes.ts'
import { issueToken } from '../llm/tokens.ts'
import { type RankedText, rankingIn } from './ranking.ts'

// Embeddings and rankings for the platform's own work, by the model gateway as for everybody else: it meters them, keeps
// budgets and adds the connectors' secrets. Each request has a token of its own.

/** No vectors, or no ranking. The message is for the tenant. */
export class ModelFailed extends Error {
  override readonly name = 'ModelFailed'
  /**
   * The model gateway's (docs/model-gateway.md) or the provider's; without one, `embedding_refused` or `embedder_unavailable`,
   * of a ranking `rerank_refused` or `reranker_unavailable`. `unreadable_embeddings`, `unreadable_ranking`: the answer is no
   * answer.
   */
  readonly code: string
  /** The same request would be refused again: its budget is spent, or something about it is wrong. */
  readonly permanent: boolean
  /** Of the answer; null if there was none. */
  readonly status: number | null

  constructor(
    message: string,
    { code, permanent, status = null, cause }: { code: string; permanent: boolean } & Partial<Failure>,
  ) {
    super(message, { cause })
    this.code = code
    this.permanent = permanent
    this.status = status
  }
}

interface Failure {
  status: number | null
  cause: unknown
}

export interface EmbeddingsAsked {
  tenant_id: string
  /** A document, or a collection for a question to it or another embedder. Its ledger is opened, and must not be closed. */
  purpose: Purpose & { kind: 'document' | 'collection' }
  /** Null: `model` is one of the platform's own, best by its id, which has the hash. None of them ranks. */
  connector_id: string | null
  model: string
  /** Of the purpose, for all that it ever embeds. Default: none but the tenant's limit. */
  budget_tokens?: number | null
  signal?: AbortSignal
}

export interface Embeddings {
  /**
   * The vectors in the order of the texts, none of which may be empty. Rejects with ModelFailed, the signal's reason, or
   * what the database throws. Texts that were embedded before that have taken their tokens.
   */
  embed(texts: string[], asked: EmbeddingsAsked): Promise<Embedded>
  /** The texts by how well they answer the query, the best first. Rejects as `embed`. */
  rerank(query: string, texts: string[], asked: EmbeddingsAsked): Promise<RankedText[]>
  /** The platform's own models, the usual one first. Rejects as `embed`. */
  models(asked: Pick<EmbeddingsAsked, 'tenant_id' | 'purpose' | 'signal'>): Promise<EmbedderFacts[]>
  close(): Promise<void>
}

/**
 * Of one request. Tenants take turns in the platform's own model, so with many of them a request takes long, and one that is
 * given up would take its tokens again.
 */
const textsAtOnce = 32
/** Longer than the gateway's own limit (KEELSON_MODELS_CALL_SEC), by default. */
const usualMs = 960_000
/** The answer of a provider passes through the gateway, and may be anything. */
const mostAnswerBytes = 16 * 1024 ** 2
const mostDimensions = 8_192

/** `url`: of the model gateway. */
export function openEmbeddings(url: string, { issue = issueToken, withinMs = usualMs } = {}): Embeddings {
  const agent = new Agent({
    headersTimeout: withinMs,
    bodyTimeout: withinMs,
    maxResponseSize: mostAnswerBytes,
  })
  const gateway = `${url.replace(/\/+$/, '')}/v1`

  async function ask<T>(
    path: string,
    asked: Omit<EmbeddingsAsked, 'model'>,
    sent: object | null,
    read: (answer: string) => T,
    codes = codesOf.embeddings,
  ): Promise<T> {
    const { signal } = asked
    const authorization = `Bearer ${await tokenFor(asked, issue)}`
    try {
      const { statusCode, body } = await request(`${gateway}${path}`, {
        method: sent ? 'POST' : 'GET',
        headers: { authorization, ...(sent ? { 'content-type': 'application/json' } : {}) },
        body: sent && JSON.stringify(sent),
        dispatcher: agent,
        ...(signal ? { signal } : {}),
      })
      const answer = await body.text()
      if (statusCode !== 200) throw refusalOf(statusCode, answer, codes)
      return read(answer)
    } catch (error) {
      signal?.throwIfAborted()
      if (error instanceof ModelFailed) throw error
      if (error instanceof errors.ResponseExceededMaxSizeError) throw unreadable('it is too long', codes)
      throw new ModelFailed('The model gateway does not answer', {
        code: codes.unavailable,
        permanent: false,
        cause: error,
      })
    }
  }

  return {
    async embed(texts, asked) {
      const all: Embedded = { vectors: [], tokens: 0 }
      for (let from = 0; from < texts.length; from += textsAtOnce) {
        asked.signal?.throwIfAborted()
        const input = texts.slice(from, from + textsAtOnce)
        const { vectors, tokens } = await ask('/embeddings', asked, { model: asked.model, input }, (answer) =>
          embeddedIn(answer, input.length),
        )
        all.vectors.push(...vectors)
        all.tokens += tokens
      }
      return all
    },
    rerank: (query, texts, asked) =>
      // Without `top_n`, which Voyage does not know: all are ranked.
      ask(
        '/rerank',
        asked,
        { model: asked.model, query, documents: texts },
        (answer) => {
          const ranking = rankingIn(parsed(answer), texts.length)
          if (!ranking)
            throw unreadable(`it does not score each of ${texts.length} texts once`, codesOf.ranking)
          return ranking
        },
        codesOf.ranking,
      ),
    models: (asked) => ask('/models', { ...asked, connector_id: null }, null, modelsIn),
    close: () => agent.close(),
  }
}

async function tokenFor(
  { tenant_id, purpose, connector_id, budget_tokens = null }: Omit<EmbeddingsAsked, 'model'>,
  issue: typeof issueToken,
): Promise<string> {
  try {
    return (await issue({ tenant_id, purpose, connector_id, fallbacks: [] }, budget_tokens)).token
  } catch (error) {
    if (!(error instanceof Problem)) throw error
    const { code, message, status } = error
    throw new ModelFailed(message, { code, permanent: true, status, cause: error })
  }
}

const codesOf = {
  embeddings: {
    refused: 'embedding_refused',
    unavailable: 'embedder_unavailable',
    unreadable: 'unreadable_embeddings',
  },
  ranking: {
    refused: 'rerank_refused',
    unavailable: 'reranker_unavailable',
    unreadable: 'unreadable_ranking',
  },
}
type Codes = (typeof codesOf)['embeddings']

/** Of a provider's error, too, which the gateway passes on. */
function refusalOf(status: number, answer: string, codes: Codes): ModelFailed {
  const { code, message } = Object(Object(parsed(answer)).error) as Record<string, unknown>
  const permanent = status < 500 && status !== 408 && status !== 429
  const why = typeof message === 'string' && message ? message.slice(0, 500) : `The answer was ${status}`
  const known = typeof code === 'string' && /^[a-z_]{1,50}$/.test(code)
  const usual = permanent ? codes.refused : codes.unavailable
  return new ModelFailed(why, { code: known ? code : usual, permanent, status })
}

/** The gateway's own list: nobody else makes it. */
const modelsIn = (answer: string): EmbedderFacts[] =>
  (JSON.parse(answer) as { data: EmbedderFacts[] }).data.map(
    ({ id, name, hash, dimensions, most_tokens }) => ({
      id,
      name,
      hash,
      dimensions,
      most_tokens,
    }),
  )

function embeddedIn(answer: string, count: number): Embedded {
  const { data, usage } = Object(parsed(answer)) as Record<string, unknown>
  const vectors: Float32Array[] = Array.from({ length: count })
  if (!Array.isArray(data) || data.length !== count) throw unreadable(`it does not have ${count} vectors`)
  for (const [place, item] of data.entries()) {
    const { index = place, embedding } = Object(item) as Record<string, unknown>
    if (!Number.isInteger(index) || !((index as number) in vectors) || vectors[index as number])
      throw unreadable('it has vectors of other texts')
    vectors[index as number] = vectorIn(embedding)
  }
  if (new Set(vectors.map(({ length }) => length)).size > 1)
    throw unreadable('its vectors have several lengths')
  const { prompt_tokens, total_tokens = prompt_tokens } = Object(usage) as Record<string, unknown>
  return { vectors, tokens: Number.isSafeInteger(total_tokens) ? Math.max(0, total_tokens as number) : 0 }
}

function vectorIn(embedding: unknown): Float32Array {
  if (!Array.isArray(embedding) || embedding.length < 1 || embedding.length > mostDimensions)
    throw unreadable(`a vector is not a list of 1 to ${mostDimensions} numbers`)
  const vector = Float32Array.from(embedding, (value) => (typeof value === 'number' ? value : Number.NaN))
  if (!vector.every(Number.isFinite)) throw unreadable('a vector has something other than numbers')
  return vector
}

const unreadable = (why: string, codes: Codes = codesOf.embeddings): ModelFailed =>
  new ModelFailed(`The model’s answer cannot be read: ${why}`, {
    code: codes.unreadable,
    permanent: false,
    status: 200,
  })

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
