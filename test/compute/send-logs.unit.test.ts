import { once } from 'node:events'
import { createServer, get, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterEach, expect, test } from '@jest/globals'
import { sendLogs } from '../../api/compute/observation/logs.ts'

const lineOf = (line: string): string =>
  JSON.stringify({ time: '2026-01-01T00:00:00.000Z', stream: 'stdout', line })

let server: Server
afterEach(() => {
  server.close()
  server.closeAllConnections()
})

/** Answers each request with these lines. Resolves to the answer, and to how the sending ended. */
async function ask(source: () => Readable, follow: boolean) {
  const sent = Promise.withResolvers<void>()
  server = createServer((_, response) => {
    sendLogs(source(), response, { follow, timestamps: true }).then(sent.resolve, sent.reject)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const [answer] = (await once(get({ port, host: '127.0.0.1', agent: false }), 'response')) as [
    IncomingMessage,
  ]
  return { answer, sent: sent.promise }
}

test('lines are sent whole, however their bytes come', async () => {
  const lines = ['one', 'zwölf €', 'three'].map(lineOf)
  const bytes = Buffer.from(`${lines.join('\n')}\n`)
  const parts = Array.from(bytes, (_, i) => bytes.subarray(i, i + 1))
  const { answer, sent } = await ask(() => Readable.from(parts, { objectMode: false }), false)
  expect(await text(answer)).toBe(`${lines.join('\n')}\n`)
  await sent
})

test.each([false, true])(
  'a client that leaves without reading ends its own request only (follow: %s)',
  async (follow) => {
    // A failure that nobody handles would end the api.
    const unhandled: unknown[] = []
    const note = (error: unknown): void => void unhandled.push(error)
    process.on('uncaughtException', note)
    try {
      const many = `${lineOf('x'.repeat(1_000))}\n`.repeat(50)
      const endless = () =>
        new Readable({
          read() {
            setImmediate(() => this.push(many))
          },
        })
      const { answer, sent } = await ask(endless, follow)
      answer.pause()
      await once(answer, 'readable')
      answer.destroy()
      await sent
      await new Promise((resolve) => setImmediate(resolve))
      expect(unhandled).toEqual([])
    } finally {
      process.off('uncaughtException', note)
    }
  },
)
