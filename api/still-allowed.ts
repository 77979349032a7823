import type { EventEmitter } from 'node:events'
import type { ServerResponse } from 'node:http'

// What lasts longer than its request's first check: WebSockets, streams, waits. They end within 10 s of a revocation.

type Refusal = Error & { status: number }
const isRefusal = (error: unknown): error is Refusal =>
  error instanceof Error && 'status' in error && (error.status === 401 || error.status === 403)

/** Two checks fit into 10 s, in case the first fails, with the age of a shared answer. */
const checkEveryMs = 4_500
const sharedForMs = 1_000

/**
 * Shares an answer for a moment among all who ask under the same key. All that a caller has open asks who the caller is by one
 * query.
 */
export function makeShared<T>(forMs = sharedForMs): (key: string, ask: () => Promise<T>) => Promise<T> {
  const answers = new Map<string, Promise<T>>()
  return (key, ask) => {
    const known = answers.get(key)
    if (known) return known
    const answer = ask()
    answers.set(key, answer)
    setTimeout(() => answers.delete(key), forMs).unref()
    return answer
  }
}

/**
 * Asks again and again whether the caller may still have what lasts. `stillAllowed` throws the refusal; `end` is called
 * once with the first that is a 401 or 403. Ends when `lasting` is closed.
 */
export function whileAllowed(
  lasting: EventEmitter,
  stillAllowed: () => Promise<unknown>,
  end: (refusal: Refusal) => void,
): void {
  const checks = setInterval(() => {
    stillAllowed().catch((error: unknown) => {
      // Any other error, such as an unavailable database, decides nothing: the next check asks again.
      if (!isRefusal(error)) return
      stop()
      end(error)
    })
  }, checkEveryMs)
  const stop = (): void => clearInterval(checks)
  lasting.once('close', stop)
}

/**
 * The answer, unless the caller loses the right to it first: then throws the refusal, or cuts the answer off if it has
 * begun, so that nobody takes it for a whole one. A handler hears of both by the response's `close`.
 */
export function unlessRevoked<T>(
  answer: Promise<T>,
  response: ServerResponse,
  stillAllowed: () => Promise<unknown>,
): Promise<T> {
  const { promise: refused, reject } = Promise.withResolvers<never>()
  whileAllowed(response, stillAllowed, (refusal) => {
    if (response.headersSent) response.destroy()
    else reject(refusal)
  })
  return Promise.race([answer, refused])
}
