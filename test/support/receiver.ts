import { once } from 'node:events'
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { eventually } from './eventually.ts'
import { eventReceiver } from './stack.ts'

/** A webhook as it arrived. */
export interface Received {
  path: string
  headers: Record<string, string>
  body: string
}

/** What the receiver answers to one request; null: nothing, it keeps the connection open. */
type Reply = { status: number; body?: string } | null

/** A receiver of webhooks at a port that the stack's operator allows. */
export async function startReceiver(port = eventReceiver.port) {
  const all: Received[] = []
  const replies = new Map<string, (count: number) => Reply>()
  const at = (path: string): Received[] => all.filter((one) => one.path === path)
  const server = createServer((request, response) => {
    void (async () => {
      const path = request.url ?? ''
      const body = await text(request)
      all.push({ path, headers: request.headers as Record<string, string>, body })
      const reply = replies.has(path) ? replies.get(path)?.(at(path).length) : { status: 204 }
      if (reply) response.writeHead(reply.status).end(reply.body)
    })()
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: (path: string, host = '127.0.0.1') => `http://${host}:${port}${path}`,
    /** How it answers at a path, by the number of requests there, from 1. Without it, 204. */
    replies: (path: string, reply: (count: number) => Reply) => void replies.set(path, reply),
    at,
    /** Waits until so many have arrived at a path. */
    arrived: (path: string, count = 1): Promise<Received[]> =>
      eventually(() => at(path).length >= count && at(path)),
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
