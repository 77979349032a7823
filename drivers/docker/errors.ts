import { EngineError, EngineRefused, EngineUnavailable } from '../errors.ts'

/** The HTTP status that the engine answered with; undefined when it did not answer. */
export function statusOf(error: unknown): number | undefined {
  const status = field(error, 'statusCode')
  return typeof status === 'number' ? status : undefined
}

/** What the engine said, in its own words. For matching and for operators, never for tenants. */
export function wordsOf(error: unknown): string {
  const words = field(field(error, 'json'), 'message') ?? field(error, 'message')
  return typeof words === 'string' ? words : ''
}

/** Runs calls to the engine; the engine's faults come out as EngineErrors with their cause, an abort as itself. */
export async function asking<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (signal?.aborted) throw signal.reason
    throw asEngineError(error)
  }
}

/** Turns an answer with one of these statuses into undefined: what was asked for is so already. */
export async function unless<T>(statuses: number[], call: Promise<T>): Promise<T | undefined> {
  try {
    return await call
  } catch (error) {
    const status = statusOf(error)
    if (status !== undefined && statuses.includes(status)) return undefined
    throw error
  }
}

/** What is no fault of the engine, or of the way to it, stays what it is: a mistake of ours. */
export function asEngineError(error: unknown): unknown {
  if (error instanceof EngineError) return error
  const status = statusOf(error)
  if (status === 400) return new EngineRefused('The container engine refuses these settings', error)
  // A 404 or 409 that no caller expected: another call changed the same container meanwhile.
  if (status !== undefined) return new EngineUnavailable('The container engine failed', error)
  if (isBrokenConnection(error)) return new EngineUnavailable('The container engine does not answer', error)
  return error
}

const brokenConnection =
  /^(ECONN|ENOENT|EPIPE|ETIMEDOUT|EHOST|ENET|EACCES|EAI_|ENOTFOUND|ERR_STREAM_PREMATURE_CLOSE)/

const isBrokenConnection = (error: unknown): boolean => brokenConnection.test(String(field(error, 'code')))

// Not `instanceof Error`: an error of Node itself is of another realm where modules run in a VM context.
const field = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined
