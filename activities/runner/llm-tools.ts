import type { OfferedTool } from '../../lib/runner-calls.ts'
import { answerName } from './llm.ts'

// Tools in the two APIs that the model gateway speaks: how they are offered, how a model calls them, and how it gets their results.

/** A call that a model asks for. */
export interface ModelCallsTool {
  name: string
  /** Undefined: they are no JSON. */
  arguments: unknown
}

export interface ToolResult {
  text: string
  is_error: boolean
}

type Json = Record<string, unknown>
const objectIn = (value: unknown): Json => Object(value) as Json
const listIn = (value: unknown): Json[] => (Array.isArray(value) ? value.map(objectIn) : [])
const isAnthropic = (provider: string): boolean => provider === 'anthropic'

/** The body of a request with tools. `hasSchema`: Anthropic's API has one more tool then, which is the last answer. */
export function offering(provider: string, body: Json, tools: OfferedTool[], hasSchema: boolean): Json {
  if (isAnthropic(provider)) {
    const offered = tools.map(({ shown, description, input_schema }) => ({
      name: shown,
      ...(description ? { description } : {}),
      input_schema,
    }))
    const choice = hasSchema ? { tool_choice: { type: 'any' } } : {}
    return { ...body, tools: [...listIn(body['tools']), ...offered], ...choice }
  }
  const offered = tools.map(({ shown, description, input_schema }) => ({
    type: 'function',
    function: { name: shown, ...(description ? { description } : {}), parameters: input_schema },
  }))
  return { ...body, tools: offered }
}

/** The calls that an answer asks for. Empty: it is a last answer, or cannot be read. */
export function callsIn(provider: string, said: string): ModelCallsTool[] {
  const answer = parsed(said)
  if (isAnthropic(provider)) {
    const uses = usesIn(answer)
    if (uses.some(({ name }) => name === answerName)) return []
    return uses.map(({ name, input }) => ({ name: String(name), arguments: input }))
  }
  return toolCallsIn(answer).map((call) => {
    const { name, arguments: given } = objectIn(call['function'])
    return { name: String(name), arguments: argumentsIn(given) }
  })
}

const usesIn = (answer: Json): Json[] => listIn(answer['content']).filter(({ type }) => type === 'tool_use')

const messageIn = (answer: Json): Json => objectIn(listIn(answer['choices'])[0]?.['message'])
const toolCallsIn = (answer: Json): Json[] => listIn(messageIn(answer)['tool_calls'])

/** Some models give no text for no arguments. */
const argumentsIn = (given: unknown): unknown =>
  given === '' || given === undefined || given === null
    ? {}
    : typeof given === 'string'
      ? quietly(given)
      : given

/** The messages that follow: the model's own as it was, since it may hold signatures of its thoughts, and the results. */
export function resultsOf(provider: string, said: string, results: ToolResult[]): object[] {
  const answer = parsed(said)
  if (isAnthropic(provider)) {
    const content = usesIn(answer).map(({ id }, at) => ({
      type: 'tool_result',
      tool_use_id: id,
      content: results[at]?.text ?? '',
      ...(results[at]?.is_error ? { is_error: true } : {}),
    }))
    return [
      { role: 'assistant', content: answer['content'] },
      { role: 'user', content },
    ]
  }
  const message = messageIn(answer)
  const own = Object.fromEntries(Object.entries(message).filter(([, value]) => value !== null))
  return [
    { ...own, role: 'assistant', content: message['content'] ?? null },
    ...toolCallsIn(answer).map(({ id }, at) => {
      const { text = '', is_error = false } = results[at] ?? {}
      return { role: 'tool', tool_call_id: id, content: is_error ? `Error: ${text}` : text }
    }),
  ]
}

const parsed = (text: string): Json => objectIn(quietly(text))

function quietly(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}
