import { unboundedAnswer } from '../../lib/ai/bounds.ts'
import { withoutAnnotations } from '../../lib/ai/redaction.ts'
import { pointerTo } from '../../lib/ai/templates.ts'
import type { ModelAlias } from '../../lib/ai/spec.ts'
import { NodeFault } from './node-faults.ts'

// A model's turn, in the two APIs that the model gateway speaks.

export interface Message {
  role: 'system' | 'user' | 'assistant'
  content: string
}

/** What is sent to the model gateway. */
export interface ModelRequest {
  path: string
  body: Record<string, unknown>
}

/** The messages' contents by JSON pointer, as they are evaluated. */
export const contentPointer = (index: number): string => pointerTo('', 'messages', index, 'content')

/** The name of the answer where an API wants one. */
export const answerName = 'answer'

type Schema = Record<string, unknown>
const isAnthropic = (provider: string): boolean => provider === 'anthropic'
const ofOpenAi = new Set(['openai', 'azure_openai'])

/** How a model is asked for an answer, which is JSON of the schema if there is one. */
export function requestTo(
  provider: string,
  { model, parameters = {} }: ModelAlias,
  messages: Message[],
  annotated: Schema | undefined,
): ModelRequest {
  const schema = annotated && withoutAnnotations(annotated)
  const { temperature, top_p, max_tokens, stop, seed, reasoning_effort } = parameters
  if (!isAnthropic(provider)) {
    const format = { name: answerName, schema: schema ?? {} }
    const body = given({
      model,
      messages,
      temperature,
      top_p,
      // OpenAI's newer models refuse the name that the others know.
      [ofOpenAi.has(provider) ? 'max_completion_tokens' : 'max_tokens']: max_tokens,
      stop,
      seed,
      reasoning_effort,
      response_format: schema && { type: 'json_schema', json_schema: format },
    })
    return { path: '/v1/chat/completions', body }
  }
  const system = messages.filter(({ role }) => role === 'system').map(({ content }) => content)
  const body = given({
    model,
    max_tokens: max_tokens ?? unboundedAnswer.anthropic,
    messages: messages.filter(({ role }) => role !== 'system'),
    system: system.length > 0 ? system.join('\n\n') : undefined,
    temperature,
    top_p,
    stop_sequences: stop,
    // Its API has no format of answers, but holds the input of a tool to a schema of an object.
    tools: schema && [
      { name: answerName, description: 'Gives the answer', input_schema: objectWith(schema) },
    ],
    tool_choice: schema && { type: 'tool', name: answerName },
  })
  return { path: '/v1/messages', body }
}

const given = (fields: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))

const isObject = ({ type }: Schema): boolean => type === 'object'
const objectWith = (schema: Schema): Schema =>
  isObject(schema) ? schema : { type: 'object', properties: { value: schema }, required: ['value'] }

/** What the model said: a text or, of a schema, the JSON of a value. Throws NodeFault if it cannot be read. */
export function answerIn(provider: string, said: string, schema: Schema | undefined): string {
  const answer = parsed(said)
  return isAnthropic(provider) ? inMessages(answer, schema) : inChat(answer, schema)
}

function inChat(answer: Json, schema: Schema | undefined): string {
  const [choice] = listIn(answer['choices'])
  const message = objectIn(choice?.['message'])
  const { content, refusal } = message
  if (typeof refusal === 'string' && refusal !== '') throw new NodeFault('model_refused', refusal)
  if (choice?.['finish_reason'] === 'content_filter')
    throw new NodeFault('model_refused', 'The provider’s filter has refused the answer')
  if (typeof content !== 'string') throw unreadable('it has no text')
  return schema ? jsonIn(content) : JSON.stringify(content)
}

function inMessages(answer: Json, schema: Schema | undefined): string {
  const parts = listIn(answer['content'])
  if (answer['stop_reason'] === 'refusal')
    throw new NodeFault('model_refused', 'The model has refused to answer')
  if (schema) {
    const uses = parts.filter((part) => part['type'] === 'tool_use')
    // Beside other tools it is found by its name.
    const use = uses.find((part) => part['name'] === answerName) ?? uses[0]
    if (!use) throw unreadable('it has no value')
    const input = objectIn(use['input'])
    return JSON.stringify((isObject(schema) ? input : input['value']) ?? null)
  }
  const texts = parts.filter((part) => part['type'] === 'text').map((part) => String(part['text']))
  if (texts.length === 0) throw unreadable('it has no text')
  return JSON.stringify(texts.join(''))
}

type Json = Record<string, unknown>
const objectIn = (value: unknown): Json => Object(value) as Json
const listIn = (value: unknown): Json[] => (Array.isArray(value) ? value.map(objectIn) : [])

function parsed(text: string): Json {
  try {
    return objectIn(JSON.parse(text))
  } catch (cause) {
    throw unreadable('it is not JSON', cause)
  }
}

function jsonIn(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text))
  } catch (cause) {
    throw unreadable('its text is not JSON', cause)
  }
}

/** Another answer may be better. */
const unreadable = (why: string, cause?: unknown): NodeFault =>
  new NodeFault('unreadable_answer', `The model’s answer cannot be read: ${why}`, { permanent: false, cause })

/** Why the gateway, or the provider behind it, refused a call. */
export function refusalOf(status: number, said: string): NodeFault {
  const { code, message } = objectIn(objectIn(quietly(said))['error'])
  const permanent = status < 500 && ![408, 409, 425, 429].includes(status)
  const known = typeof code === 'string' && /^[a-z_]{1,50}$/.test(code) ? code : null
  const why = typeof message === 'string' && message ? message : `The answer was ${status}`
  return new NodeFault(known ?? (permanent ? 'model_refused_call' : 'model_unavailable'), why, { permanent })
}

function quietly(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
