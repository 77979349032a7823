import { type Dialect, isCredible, type SaidUsage, usageIn } from './dialects.ts'

// Reads an answer while it passes: its usage, and how much text it had. The bytes go on as they came.

export interface Tap {
  /** Takes a piece of the answer, and returns what goes on to the caller. */
  take(chunk: Buffer): Buffer
  /** What is left when the answer has ended. */
  end(): Buffer
  /** Whether the answer has come to its end, as its API says it. */
  readonly isWhole: boolean
  /** Whether the answer says that it is none, in spite of its status. */
  readonly hasFailed: boolean
  /** What the answer said; null if nothing, or nothing that can be true. */
  usage(): SaidUsage | null
  /** Bytes of text that the answer had. */
  readonly textBytes: number
  /** Whether it said figures that cannot be true. */
  readonly lied: boolean
}

/** Longer than any answer that is not a stream should be; beyond it the usage is not read. */
const longestJson = 32 * 1024 ** 2
/** Of one event of a stream. */
const longestEvent = 8 * 1024 ** 2

const none = Buffer.alloc(0)

/**
 * For an answer of one JSON value. Each piece goes on when the next one is here, so that an answer of one piece goes to the
 * caller in one write.
 */
export function tapJson(dialect: Dialect): Tap {
  const chunks: Buffer[] = []
  let held: Buffer = none
  let length = 0
  let said: SaidUsage | null = null
  let isWhole = false
  let hasFailed = false
  return {
    take(chunk) {
      length += chunk.length
      if (length <= longestJson) chunks.push(chunk)
      const before = held
      held = chunk
      return before
    },
    end() {
      const message = length <= longestJson ? parse(Buffer.concat(chunks).toString()) : null
      said = usageIn(dialect, message)
      isWhole = message !== null
      hasFailed = saysFailure(message)
      chunks.length = 0
      return held
    },
    get isWhole() {
      return isWhole
    },
    get hasFailed() {
      return hasFailed
    },
    usage: () => (said && isCredible(said) ? said : null),
    get textBytes() {
      return length
    },
    get lied() {
      return said !== null && !isCredible(said)
    },
  }
}

/**
 * For a stream of server-sent events. `hidden`: the event with the usage was not asked for by the caller, and does not
 * go on.
 */
export function tapEvents(dialect: Dialect, hidden: boolean): Tap {
  let rest: Buffer = none
  const said: SaidUsage = {}
  let textBytes = 0
  let isWhole = false
  let hasFailed = false
  let isTooLong = false

  /** Whether the event goes on. */
  function read(event: Buffer): boolean {
    const data = dataOf(event)
    if (data === '') return true
    if (data === '[DONE]') {
      isWhole = true
      return true
    }
    const message = parse(data)
    const { type, delta, choices } = Object(message) as Record<string, unknown>
    if (type === 'message_stop' || /^response\.(completed|incomplete|failed)$/.test(String(type)))
      isWhole = true
    hasFailed ||= saysFailure(message)
    textBytes += textIn(delta) + textIn(choices)
    const usage = usageIn(dialect, message)
    if (usage) Object.assign(said, usage)
    return !(hidden && usage && Array.isArray(choices) && choices.length === 0)
  }

  return {
    take(chunk) {
      if (isTooLong) return chunk
      const { events, left } = split(rest.length ? Buffer.concat([rest, chunk]) : chunk)
      const kept = events.filter(read)
      if (!hidden) {
        rest = left
        isTooLong = left.length > longestEvent
        return chunk
      }
      if (left.length <= longestEvent) {
        rest = left
        return kept.length === 1 ? (kept[0] as Buffer) : Buffer.concat(kept)
      }
      isTooLong = true
      rest = none
      return Buffer.concat([...kept, left])
    },
    end() {
      if (rest.length === 0 || isTooLong) return none
      const goesOn = read(rest) && hidden
      return goesOn ? rest : none
    },
    get isWhole() {
      return isWhole
    },
    get hasFailed() {
      return hasFailed
    },
    usage: () => (Object.keys(said).length && isCredible(said) ? said : null),
    get textBytes() {
      return textBytes
    },
    get lied() {
      return !isCredible(said)
    },
  }
}

const lineFeed = 10
const carriageReturn = 13

/** Cuts after each blank line. */
function split(bytes: Buffer): { events: Buffer[]; left: Buffer } {
  const events: Buffer[] = []
  let from = 0
  for (let at = bytes.indexOf(lineFeed); at !== -1; at = bytes.indexOf(lineFeed, at + 1)) {
    const next = bytes[at + 1] === carriageReturn ? at + 2 : at + 1
    if (bytes[next] !== lineFeed) continue
    events.push(bytes.subarray(from, next + 1))
    from = next + 1
    at = next
  }
  return { events, left: bytes.subarray(from) }
}

function dataOf(event: Buffer): string {
  const lines = event.toString().split(/\r?\n/)
  return lines.flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trimStart()] : [])).join('\n')
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** Both APIs tell a failure in `error`, on top or in the response of an event; OpenAI's responses have a status, too. */
const saysFailure = (message: unknown): boolean =>
  [Object(message), Object(Object(message).response)].some(
    ({ type, status, error }) => type === 'error' || status === 'failed' || (error ?? null) !== null,
  )

/** The bytes of all texts in a delta. */
function textIn(delta: unknown, depth = 0): number {
  if (typeof delta === 'string') return Buffer.byteLength(delta)
  if (typeof delta !== 'object' || delta === null || depth > 6) return 0
  return Object.values(delta).reduce<number>((sum, part) => sum + textIn(part, depth + 1), 0)
}
