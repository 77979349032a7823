import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import * as answers from './answers.ts'

/** A request as it came to the provider. */
export interface AskedProvider {
  path: string
  headers: IncomingMessage['headers']
  body: Record<string, unknown>
  bytes: string
}

/** How a provider treats one request. */
export interface Treatment {
  figures?: answers.Figures
  /** The text of a chat. */
  says?: string
  /** Instead of an answer; null: never. */
  status?: number | null
  /** Of a status, as text; by default an error in the provider's form. */
  error?: string
  headers?: Record<string, string>
  /** Ends the connection after so many events of a stream. */
  breaksAfter?: number
  /** Waits for this after so many events of a stream, or before any other answer. */
  waits?: { after: number; for: Promise<unknown> }
  /** What is wrong with a ranking. */
  ranking?: answers.RankingFault
  /** Repeats the events with text without end. */
  endless?: boolean
}

/**
 * A provider of models whose answers a test scripts: a server that speaks the APIs of OpenAI and Anthropic below `/v1`, OpenAI's
 * where Google has it, and the ranking of texts that Cohere, Jina and vLLM have.
 * `treat` says how it treats a request, by its model, the number of requests for it, from 1, and its body. `onPort`: default, any.
 */
export async function startModelProvider(
  treat: (model: string, count: number, body: Record<string, unknown>) => Treatment = () => ({}),
  onPort = 0,
) {
  const asked: AskedProvider[] = []
  const left = new Set<string>()
  const server = createServer((request, res) => {
    void answer(request, res)
  })

  async function answer(request: IncomingMessage, res: ServerResponse): Promise<void> {
    const path = (request.url ?? '').replace(/\?.*$/, '').replace('/v1beta/openai/', '/v1/')
    const bytes = await text(request)
    const body = (bytes === '' ? {} : JSON.parse(bytes)) as Record<string, unknown>
    asked.push({ path: request.url ?? '', headers: request.headers, body, bytes })
    const model = String(body['model'])
    res.once('close', () => {
      if (!res.writableFinished) left.add(model)
    })
    const count = asked.filter((one) => one.body['model'] === body['model']).length
    const treatment = treat(model, count, body)
    if (treatment.status === null) return
    if (treatment.status !== undefined) {
      const error = { message: 'The provider says no', type: 'provider_says_no', param: null, code: null }
      res.writeHead(treatment.status, { 'content-type': 'application/json', ...treatment.headers })
      res.end(treatment.error ?? JSON.stringify({ type: 'error', error }))
      return
    }
    const made = {
      body,
      figures: treatment.figures ?? 'true',
      says: treatment.says,
      fault: treatment.ranking,
    }
    const [whole, events] = kinds[path] ?? [() => answers.models, null]
    if (events && body['stream'] === true) return stream(res, events(made), treatment)
    await treatment.waits?.for
    res.writeHead(200, { 'content-type': 'application/json', 'x-request-id': 'req_1', 'set-cookie': 'a=b' })
    res.end(JSON.stringify(whole(made)))
  }

  server.listen(onPort, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    port,
    base_url: `http://127.0.0.1:${port}/v1`,
    asked,
    askedFor: (model: string) => asked.filter(({ body }) => body['model'] === model),
    /** How many answers for this model it takes money for, as one that knows a repeated request by its `Idempotency-Key`. */
    billedFor(model: string): number {
      const keys = asked.flatMap(({ body, headers }, at) =>
        body['model'] === model ? [headers['idempotency-key'] ?? at] : [],
      )
      return new Set(keys).size
    },
    /** Whether the other side has ended the connection of an answer for this model. */
    wasLeft: (model: string) => left.has(model),
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
export type ModelProvider = Awaited<ReturnType<typeof startModelProvider>>

type Made = Parameters<typeof answers.chat>[0] & { fault?: answers.RankingFault | undefined }
type Kind = [whole: (of: Made) => object, events: ((of: Made) => string[]) | null]
const kinds: Record<string, Kind> = {
  '/v1/chat/completions': [answers.chat, answers.chatEvents],
  '/v1/responses': [answers.response, answers.responseEvents],
  '/v1/messages': [answers.message, answers.messageEvents],
  '/v1/embeddings': [answers.embedding, null],
  '/v1/rerank': [(made) => answers.ranking(made, made.fault), null],
  '/v1/messages/count_tokens': [() => ({ input_tokens: answers.said.usage.input }), null],
}

async function stream(res: ServerResponse, events: string[], treatment: Treatment): Promise<void> {
  const { breaksAfter, waits, endless } = treatment
  res.writeHead(200, { 'content-type': 'text/event-stream', 'x-request-id': 'req_1' })
  for (const [i, one] of events.entries()) {
    if (i === waits?.after) await waits.for
    if (i === breaksAfter) {
      res.destroy()
      return
    }
    // In two parts, as networks cut.
    res.write(one.slice(0, 9))
    await new Promise(setImmediate)
    res.write(one.slice(9))
    const isText = one.includes('"content":"') || one.includes('text_delta')
    if (endless && isText) return repeat(res, one)
  }
  res.end()
}

async function repeat(res: ServerResponse, event: string): Promise<void> {
  while (!res.destroyed) {
    if (!res.write(event)) await Promise.race([once(res, 'drain'), once(res, 'close')])
    await new Promise(setImmediate)
  }
}
