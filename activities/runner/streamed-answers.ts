import { createParser } from 'eventsource-parser'

// A model's answer as it streams, in the two APIs that the model gateway speaks.

/** An answer that is being read. */
export interface StreamedAnswer {
  take(piece: Buffer): void
  /** The answer as it would have come without streaming, and whether it tells a failure. Throws if it has not come to its end. */
  end(): { said: string; failed: boolean }
}

type Json = Record<string, unknown>
const objectIn = (value: unknown): Json => Object(value) as Json
const firstIn = (value: unknown): Json => objectIn(Array.isArray(value) ? value[0] : undefined)

/** What has been read of an answer. */
interface Read {
  text: string | null
  refusal: string | null
  /** Why it ended. */
  reason: unknown
  ended: boolean
}

/** Reads an answer of the API at this path. `onText` gets its text piece by piece. */
export function readStreamed(path: string, onText: (text: string) => void): StreamedAnswer {
  const read: Read = { text: null, refusal: null, reason: null, ended: false }
  const isMessages = path === '/v1/messages'
  const readEvent = isMessages ? inMessages : inChat
  let failure: string | null = null
  const parser = createParser({
    onEvent({ data }) {
      if (data === '[DONE]') {
        read.ended = true
        return
      }
      const event = parsed(data)
      if (event['error']) failure ??= data
      const before = read.text?.length ?? 0
      readEvent(event, read)
      const more = read.text?.slice(before)
      if (more) onText(more)
    },
  })
  const decoder = new TextDecoder()
  return {
    take: (piece) => parser.feed(decoder.decode(piece, { stream: true })),
    end() {
      if (failure !== null) return { said: failure, failed: true }
      if (!read.ended) throw new Error('The answer has no end')
      return { said: JSON.stringify(isMessages ? asMessage(read) : asChat(read)), failed: false }
    },
  }
}

function inChat({ choices }: Json, read: Read): void {
  const choice = firstIn(choices)
  const { content, refusal } = objectIn(choice['delta'])
  if (typeof content === 'string') read.text = (read.text ?? '') + content
  if (typeof refusal === 'string') read.refusal = (read.refusal ?? '') + refusal
  read.reason = choice['finish_reason'] ?? read.reason
  // Not every server says `[DONE]`.
  read.ended ||= typeof choice['finish_reason'] === 'string'
}

function inMessages({ type, delta, content_block }: Json, read: Read): void {
  const { text, stop_reason } = objectIn(type === 'content_block_start' ? content_block : delta)
  if (typeof text === 'string') read.text = (read.text ?? '') + text
  read.reason = stop_reason ?? read.reason
  read.ended ||= type === 'message_stop'
}

const asChat = ({ text: content, refusal, reason: finish_reason }: Read): Json => ({
  choices: [{ message: { role: 'assistant', content, refusal }, finish_reason }],
})

const asMessage = ({ text, reason: stop_reason }: Read): Json => ({
  content: text === null ? [] : [{ type: 'text', text }],
  stop_reason,
})

function parsed(data: string): Json {
  try {
    return objectIn(JSON.parse(data))
  } catch {
    return {} // no event of these APIs
  }
}
