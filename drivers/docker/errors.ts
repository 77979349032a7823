import { EngineError, EngineRefused, EngineUnavailable } from '../errors.ts'

/** The HTTP status of the engine's answer; undefined if it did not answer. */
export function statusOf(error: unknown): number | undefined {
  const status = field(error, 'statusCode')
  return typeof status === 'number' ? status : undefined
}

/** The engine's message. For matching and for operators, never for tenants. */
export function wordsOf(error: unknown): string {
  const words = field(field(error, 'json'), 'message') ?? field(error, 'message')
  return typeof words === 'string' ? words : ''
}

/** Runs calls to the engine. Throws engine failures as EngineErrors with their cause, and an abort as it is. */
export async function asking<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (signal?.aborted) throw signal.reason
    throw asEngineError(error)
  }
}

/** Returns undefined for an answer with one of these statuses, which mean that nothing is left to do. */
export async function unless<T>(statuses: number[], call: Promise<T>): Promise<T | undefined> {
  try {
    return await call
  } catch (error) {
    const status = statusOf(error)
    if (status !== undefined && statuses.includes(status)) return undefined
    throw error
  }
}

/** The option of a call that gives up when the signal aborts. */
export const until = (signal: AbortSignal | undefined) => (signal ? { abortSignal: signal } : {})

/** Leaves other errors unchanged: they are bugs of ours. */
export function asEngineError(error: unknown): unknown {
  if (error instanceof EngineError) return error
  const status = statusOf(error)
  if (status === 400) return new EngineRefused('The container engine refuses these settings', error)
  // An unexpected 404 or 409: another call changed the same container meanwhile.
  if (status !== undefined) return new EngineUnavailable('The container engine failed', error)
  if (isBrokenConnection(error)) return new EngineUnavailable('The container engine does not answer', error)
  return error
}

const brokenConnection =
  /^(ECONN|ENOENT|EPIPE|ETIMEDOUT|EHOST|ENET|EACCES|EAI_|ENOTFOUND|ERR_STREAM_PREMATURE_CLOSE)/

const isBrokenConnection = (error: unknown): boolean => brokenConnection.test(String(field(error, 'code')))

// Not `instanceof Error`: in a VM context, Node's own errors belong to another realm.
const field = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined
