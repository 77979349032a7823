import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type IncomingMessage, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { Duplex } from 'node:stream'
import { text } from 'node:stream/consumers'
import { StoreClient } from '../../../images/rag/client.ts'
import type { Problem } from '../../../lib/problem.ts'
import { makeStoreRelay } from '../../../worker/host/store-relay.ts'
import { openServer, type ServedStore } from './servers.ts'
import type { OpenStore } from './stores.ts'

const program = resolve(import.meta.dirname, '../../../images/rag/pipe.mjs')

/** The program that the platform starts in a store's container, here for the store with this socket. */
export const startPipe = (socket: string): ChildProcessWithoutNullStreams =>
  spawn(process.execPath, [program], { env: { RAG_SOCKET: socket } })

/** A store behind a host's relay, which reaches it by processes of pipe.mjs. */
export interface RelayedStore extends OpenStore {
  store: StoreClient
  served: ServedStore
  /** Of the relay, without tokens: the paths are the store's. */
  port: number
  /** The processes that the relay has started. */
  pipes: ChildProcessWithoutNullStreams[]
}

/** `pipe`: what the relay has for a stream into the container, if not a process of pipe.mjs. */
export async function openThroughHost({
  pipe,
}: {
  pipe?: () => Promise<Duplex>
} = {}): Promise<RelayedStore> {
  const served = await openServer()
  const pipes: ChildProcessWithoutNullStreams[] = []
  const startNext = async (): Promise<Duplex> => {
    const child = startPipe(served.socket)
    pipes.push(child)
    const stream = Duplex.from({ readable: child.stdout, writable: child.stdin })
    // As a pipe of the engine: what destroys it is its user's to hear of.
    for (const one of [stream, child.stdin, child.stdout]) one.on('error', () => {})
    return stream
  }
  const relay = makeStoreRelay({ pipe: pipe ?? startNext })
  const host = createServer((asked, response) => {
    relay('container', asked.url ?? '/', asked, response).catch(({ status, message, code }: Problem) => {
      if (response.headersSent) response.destroy()
      else response.writeHead(status).end(JSON.stringify({ code, detail: message }))
    })
  })
  await once(host.listen(0, '127.0.0.1'), 'listening')
  const { port } = host.address() as AddressInfo
  return {
    folder: served.folder,
    store: new StoreClient((method, path, body) => ask(port, method, path, body && JSON.stringify(body))),
    served,
    port,
    pipes,
    again: () => served.again(),
    async close() {
      host.close()
      host.closeAllConnections()
      for (const child of pipes) child.kill('SIGKILL')
      await served.close()
    },
  }
}

/** A request to the relay, and its answer. */
export async function ask(port: number, method: string, path: string, body = '') {
  const headers = body
    ? { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
    : {}
  const sent = request({ port, method, path, headers, agent: false })
  sent.end(body)
  const [answer] = (await once(sent, 'response')) as [IncomingMessage]
  return { status: answer.statusCode ?? 0, said: await text(answer), headers: answer.headers }
}
