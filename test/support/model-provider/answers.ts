import { createHash } from 'node:crypto'

// What a scripted model says, in both APIs. All of its figures are fixed, so that a test knows what a call took.

export const said = {
  /** In pieces, as it streams. */
  pieces: ['Three ', 'plain ', 'words'],
  usage: { input: 21, cached: 5, output: 9 },
  tool: { name: 'weather', id: 'call_1', arguments: ['{"city"', ':"Oslo"}'] },
}
export const text = said.pieces.join('')

/** How the figures of an answer differ from the truth. */
export type Figures = 'true' | 'none' | 'zero' | 'absurd' | 'negative'

interface Counts {
  input: number
  cached: number
  output: number
}
const countsOf = (figures: Figures): Counts | null => {
  if (figures === 'none') return null
  if (figures === 'zero') return { input: 0, cached: 0, output: 0 }
  if (figures === 'absurd') return { input: 1e15, cached: 0, output: 9e15 }
  if (figures === 'negative') return { input: -1_000_000, cached: 0, output: -5 }
  return said.usage
}

const ofChat = (figures: Figures) => {
  const counts = countsOf(figures)
  return (
    counts && {
      prompt_tokens: counts.input,
      completion_tokens: counts.output,
      total_tokens: counts.input + counts.output,
      prompt_tokens_details: { cached_tokens: counts.cached },
    }
  )
}
const ofResponses = (figures: Figures) => {
  const counts = countsOf(figures)
  return (
    counts && {
      input_tokens: counts.input,
      output_tokens: counts.output,
      total_tokens: counts.input + counts.output,
      input_tokens_details: { cached_tokens: counts.cached },
    }
  )
}
/** Its input leaves out what the cache gave. */
const ofMessages = (figures: Figures) => {
  const counts = countsOf(figures)
  return counts && { input_tokens: counts.input - counts.cached, cache_read_input_tokens: counts.cached }
}

type Body = Record<string, unknown>
interface Asked {
  body: Body
  figures: Figures
  /** Instead of the usual text. */
  says?: string | undefined
}

/** A model calls a tool that it is offered, until it has the tool's answer. */
const callsTool = ({ tools, messages, input }: Body): boolean =>
  Array.isArray(tools) &&
  !/tool_result|"role":"tool"|function_call_output/.test(JSON.stringify(messages ?? input))

const event = (data: unknown, name?: string): string =>
  `${name ? `event: ${name}\n` : ''}data: ${JSON.stringify(data)}\n\n`

export function chat({ body, figures, says = text }: Asked): object {
  const { tool } = said
  const choice = callsTool(body)
    ? {
        role: 'assistant',
        content: null,
        tool_calls: [
          {
            id: tool.id,
            type: 'function',
            function: { name: tool.name, arguments: tool.arguments.join('') },
          },
        ],
      }
    : { role: 'assistant', content: says }
  const finish_reason = callsTool(body) ? 'tool_calls' : 'stop'
  const usage = ofChat(figures)
  return {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1,
    model: body['model'],
    choices: [{ index: 0, message: choice, finish_reason }],
    ...(usage && { usage }),
  }
}

const piecesOf = (says: string | undefined): string[] => (says === undefined ? said.pieces : [says])

/** The events of a stream, one by one. */
export function chatEvents({ body, figures, says }: Asked): string[] {
  const { tool } = said
  const asksUsage = Object(body['stream_options']).include_usage === true
  const base = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: body['model'] }
  const chunk = (delta: object, finish_reason: string | null = null) =>
    event({ ...base, choices: [{ index: 0, delta, finish_reason }], ...(asksUsage && { usage: null }) })
  const call = (of: object) => chunk({ tool_calls: [{ index: 0, ...of }] })
  const parts = callsTool(body)
    ? [
        call({ id: tool.id, type: 'function', function: { name: tool.name, arguments: '' } }),
        ...tool.arguments.map((piece) => call({ function: { arguments: piece } })),
        chunk({}, 'tool_calls'),
      ]
    : [...piecesOf(says).map((piece) => chunk({ content: piece })), chunk({}, 'stop')]
  const usage = ofChat(figures)
  return [
    chunk({ role: 'assistant' }),
    ...parts,
    ...(asksUsage && usage ? [event({ ...base, choices: [], usage })] : []),
    'data: [DONE]\n\n',
  ]
}

export function response({ body, figures }: Asked): object {
  const content = [{ type: 'output_text', text, annotations: [] }]
  const words = { id: 'msg_1', type: 'message', role: 'assistant', status: 'completed', content }
  const { tool } = said
  const call = {
    id: 'fc_1',
    type: 'function_call',
    call_id: tool.id,
    name: tool.name,
    arguments: tool.arguments.join(''),
  }
  return {
    id: 'resp_1',
    object: 'response',
    created_at: 1,
    status: 'completed',
    model: body['model'],
    output: [callsTool(body) ? call : words],
    usage: ofResponses(figures),
  }
}

export function responseEvents(asked: Asked): string[] {
  const done = response(asked)
  const of = { item_id: 'msg_1', output_index: 0, content_index: 0 }
  const parts = callsTool(asked.body)
    ? said.tool.arguments.map((delta) => ({
        type: 'response.function_call_arguments.delta',
        item_id: 'fc_1',
        output_index: 0,
        delta,
      }))
    : said.pieces.map((delta) => ({ type: 'response.output_text.delta', ...of, delta }))
  const all = [
    { type: 'response.created', response: { ...done, status: 'in_progress', output: [], usage: null } },
    ...parts,
    { type: 'response.completed', response: done },
  ]
  return all.map((data, sequence_number) => event({ ...data, sequence_number }, data.type))
}

export function message({ body, figures }: Asked): object {
  const { tool } = said
  const content = callsTool(body)
    ? [
        {
          type: 'tool_use',
          id: tool.id,
          name: tool.name,
          input: JSON.parse(tool.arguments.join('')) as object,
        },
      ]
    : [{ type: 'text', text }]
  const output = countsOf(figures)?.output
  return {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: body['model'],
    content,
    stop_reason: callsTool(body) ? 'tool_use' : 'end_turn',
    stop_sequence: null,
    ...(output === undefined ? {} : { usage: { ...ofMessages(figures), output_tokens: output } }),
  }
}

export function messageEvents({ body, figures }: Asked): string[] {
  const { tool } = said
  const isCall = callsTool(body)
  const counts = countsOf(figures)
  const begun = {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: body['model'],
    content: [],
    stop_reason: null,
    stop_sequence: null,
    ...(counts && { usage: { ...ofMessages(figures), output_tokens: Math.min(1, counts.output) } }),
  }
  const deltas = isCall
    ? tool.arguments.map((partial_json) => ({ type: 'input_json_delta', partial_json }))
    : said.pieces.map((piece) => ({ type: 'text_delta', text: piece }))
  const all = [
    { type: 'message_start', message: begun },
    {
      type: 'content_block_start',
      index: 0,
      content_block: isCall
        ? { type: 'tool_use', id: tool.id, name: tool.name, input: {} }
        : { type: 'text', text: '' },
    },
    { type: 'ping' },
    ...deltas.map((delta) => ({ type: 'content_block_delta', index: 0, delta })),
    { type: 'content_block_stop', index: 0 },
    {
      type: 'message_delta',
      delta: { stop_reason: isCall ? 'tool_use' : 'end_turn', stop_sequence: null },
      ...(counts && { usage: { output_tokens: counts.output } }),
    },
    { type: 'message_stop' },
  ]
  return all.map((data) => event(data, data.type))
}

/** One vector for a text; for a list of texts, vectors that are near each other if the texts share words. */
export const embedding = ({ body }: Asked): object => {
  const { input } = body
  const vectors = Array.isArray(input) ? input.map((one) => wordVector(String(one))) : [[0.25, -0.5]]
  return {
    object: 'list',
    model: body['model'],
    data: vectors.map((vector, index) => ({ object: 'embedding', index, embedding: vector })),
    usage: { prompt_tokens: said.usage.input, total_tokens: said.usage.input },
  }
}

/** What is wrong with a ranking: texts that were not sent, one of them twice, or only some of them. */
export type RankingFault = 'outside' | 'twice' | 'some'

/**
 * The texts by how many words they share with the query, the best first, with the texts as Jina and vLLM repeat them. Without
 * figures it tells searches instead of tokens, as Cohere.
 */
export function ranking({ body, figures }: Asked, fault?: RankingFault): object {
  const { query, documents } = body as { query: string; documents: string[] }
  const asked = wordsIn(query)
  const results = documents
    .map((document, index) => {
      const its = wordsIn(document)
      const shared = [...asked].filter((word) => its.has(word)).length
      return { index, relevance_score: shared / asked.size, document: { text: document } }
    })
    .toSorted((a, b) => b.relevance_score - a.relevance_score)
    .map((one, place) => ({
      ...one,
      index: fault === 'twice' ? 0 : one.index + (fault === 'outside' ? place : 0),
    }))
  const counts = countsOf(figures)
  return {
    id: 'rank_1',
    model: body['model'],
    results: fault === 'some' ? results.slice(1) : results,
    ...(counts
      ? { usage: { total_tokens: counts.input } }
      : { meta: { api_version: { version: '2' }, billed_units: { search_units: 1 } } }),
  }
}

const wordsIn = (input: string): Set<string> =>
  new Set(Array.from(input.toLowerCase().matchAll(/\w+/g), ([word]) => word))

export const wordDimensions = 512

/** How often each word occurs, by a hash of the word. */
export function wordVector(input: string): number[] {
  const vector = Array.from({ length: wordDimensions }, () => 0)
  for (const [word] of input.toLowerCase().matchAll(/\w+/g)) {
    const at = createHash('sha256').update(word).digest().readUInt16LE() % wordDimensions
    vector[at] = (vector[at] as number) + 1
  }
  return vector
}

export const models = {
  object: 'list',
  data: [{ id: 'good', object: 'model', type: 'model', created: 1, owned_by: 'tests', display_name: 'Good' }],
  has_more: false,
  first_id: 'good',
  last_id: 'good',
}
