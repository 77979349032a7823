import type { EventEmitter } from 'node:events'
import type { ServerResponse } from 'node:http'
import { TooManyRequests } from '../lib/problem.ts'

// What one tenant may have open at once, on each api replica: limits of requests per second do not bound what lasts.

/** Takes a place of the tenant until `until` closes. Throws TooManyRequests if it has none left. */
export type Cap = (tenantId: string, until: EventEmitter) => void

export function makeCap(most: number, what: string): Cap {
  const open = new Map<string, number>()
  return (tenantId, until) => {
    const before = open.get(tenantId) ?? 0
    if (before >= most) throw tooMany(most, what)
    open.set(tenantId, before + 1)
    until.once('close', () => {
      const left = (open.get(tenantId) ?? 1) - 1
      if (left > 0) open.set(tenantId, left)
      else open.delete(tenantId)
    })
  }
}

const tooMany = (most: number, what: string): TooManyRequests =>
  new TooManyRequests(1, `The tenant has ${most} ${what} open, and may have no more at once`)

/** What lasts: a WebSocket, a stream such as a log that is followed, the reading of an archive, a wait, a probe. */
export type Lasting = 'socket' | 'stream' | 'archive' | 'wait' | 'probe'

/** `most`: sockets, and streams. An archive takes far more work than a stream, a wait far less. */
export const makeCaps = (most: number): Record<Lasting, Cap> => ({
  socket: makeCap(most, 'WebSockets'),
  stream: makeCap(most, 'streams'),
  archive: makeCap(Math.ceil(most / 10), 'archives'),
  wait: makeCap(most * 10, 'waits'),
  probe: makeCap(Math.ceil(most / 20), 'probes'),
})

// A list is up to 100 documents, in memory from the query until its client has read it.
const listsAtOnce = 16
const listsWaiting = 500

interface Lists {
  open: number
  waiting: (() => void)[]
}

/**
 * Runs lists of a tenant a few at a time; the others wait. A place is free again when the client has the answer, so
 * clients that read slowly hold back their own tenant alone. Throws TooManyRequests if too many wait.
 */
export function makeListTurns(atOnce = listsAtOnce, mostWaiting = listsWaiting) {
  const tenants = new Map<string, Lists>()
  return async <T>(tenantId: string, response: ServerResponse, work: () => Promise<T>): Promise<T> => {
    const lists = tenants.get(tenantId) ?? { open: 0, waiting: [] }
    tenants.set(tenantId, lists)
    if (lists.waiting.length >= mostWaiting) throw tooMany(mostWaiting, 'lists')
    if (lists.open >= atOnce) await new Promise<void>((resolve) => lists.waiting.push(resolve))
    else lists.open++
    const leave = (): void => {
      const next = lists.waiting.shift()
      if (next) return next() // in the same place
      lists.open--
      if (lists.open === 0) tenants.delete(tenantId)
    }
    if (response.destroyed || response.closed) leave()
    else response.once('close', leave)
    return work()
  }
}
