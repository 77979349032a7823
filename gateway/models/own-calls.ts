import type { ServerResponse } from 'node:http'
import type { Embedder } from '../../drivers/embedders.ts'
import { EngineError } from '../../drivers/errors.ts'
import type { CallEnd } from '../../models/llm/calls.ts'
import { noUsage } from '../../models/llm/prices.ts'
import { CallRefused, type Dialect, type Endpoint } from './dialects.ts'
import { embeddingsAnswer, embeddingsIn, modelView } from './embeddings.ts'
import type { OwnModels } from './own-models.ts'
import type { Asked } from './requests.ts'

/** A call of a model that runs here. */
export interface OwnCall {
  models: OwnModels
  endpoint: Endpoint
  dialect: Dialect
  asked: Asked
  /** The tenant: tenants take turns. */
  party: string
  response: ServerResponse
  end: CallEnd
  begunMs: number
  mostMs: number
  /** Ends the call, if the gateway stops. */
  stop: AbortController
  /** Runs before the answer goes to the caller. */
  beforeLast: (answer: Buffer) => Promise<void>
}

export const ownHeaders = { 'content-type': 'application/json' }

/** Answers the call, and notes in `end` how it went. Throws CallRefused. */
export async function answerOwn(call: OwnCall): Promise<void> {
  const { response, end, begunMs, beforeLast } = call
  try {
    const answer = Buffer.from(JSON.stringify(await answerTo(call)))
    end.status = 'succeeded'
    end.http_status = 200
    end.first_byte_ms = Date.now() - begunMs
    await beforeLast(answer)
    response.writeHead(200, ownHeaders).end(answer)
  } catch (error) {
    if (response.destroyed) end.status = 'interrupted'
    else if (error instanceof CallRefused && error.status < 500 && !end.input_tokens) end.status = 'refused'
    throw error
  }
}

async function answerTo(call: OwnCall): Promise<object> {
  const { models, endpoint, dialect, asked } = call
  const { name, path } = endpoint
  const views = models.embedders.map(({ facts }) => facts)
  if (dialect === 'openai' && path === '/models') return { object: 'list', data: views.map(modelView) }
  if (dialect === 'openai' && name === 'models')
    return modelView(embedderOf(models, path.slice('/models/'.length)).facts)
  if (name === 'embeddings') return embedded(call, embedderOf(models, asked.model))
  throw new CallRefused(404, 'not_found', 'The platform’s own models have no such API')
}

function embedderOf(models: OwnModels, model: string): Embedder {
  const found = models.find(model)
  if (!found) throw new CallRefused(404, 'model_not_found', 'The platform has no such model')
  return found
}

async function embedded(call: OwnCall, embedder: Embedder): Promise<object> {
  const { asked, party, response, end, mostMs, stop } = call
  const { facts } = embedder
  end.model = facts.name
  const { texts, encoding } = embeddingsIn(asked.fields, facts)
  const late = new CallRefused(504, 'provider_timeout', 'The model did not answer in time')
  const timer = setTimeout(() => stop.abort(late), mostMs)
  // Nobody reads on for a caller who has left: what was embedded until then is counted.
  const onClose = () => stop.abort()
  response.once('close', onClose)
  const onTokens = (tokens: number) =>
    Object.assign(end, { ...noUsage, input_tokens: end.input_tokens + tokens, counted_by: 'provider' })
  try {
    if (response.destroyed) stop.abort()
    const made = await embedder.embed(texts, { signal: stop.signal, party, onTokens })
    return embeddingsAnswer(facts, made, encoding)
  } catch (error) {
    throw refusalOf(error)
  } finally {
    clearTimeout(timer)
    response.off('close', onClose)
  }
}

function refusalOf(error: unknown): unknown {
  if (!(error instanceof EngineError)) return error
  return error.permanent
    ? new CallRefused(400, error.code, error.message, { cause: error })
    : new CallRefused(503, error.code, 'The model cannot be used now', { cause: error, retryAfterSec: 5 })
}
