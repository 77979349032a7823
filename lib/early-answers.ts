import type { IncomingMessage } from 'node:http'
import { finished } from 'node:stream/promises'

// Answers that come before their request was read to its end, as that for a full disk does. If the connection then ended with
// bytes unread, the sender would see a broken connection instead of the answer.

/** A sender has the answer long before, and stops by itself. */
const lingerMs = 30_000

/** Reads what is left of a request whose sender ends the connection with the answer. Call it before the answer ends. */
export async function readRest(request: IncomingMessage): Promise<void> {
  request.unpipe()
  request.resume()
  await finished(request, { signal: AbortSignal.timeout(lingerMs) }).catch(() => {})
}

/** The same for a connection that stays: what is left would be taken for the next request. Does not wait. */
export function readOn(request: IncomingMessage): void {
  void readRest(request).then(() => (request.complete ? undefined : request.destroy()))
}
