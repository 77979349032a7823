// What the model gateway is measured with: `node servers.ts provider PORT [at-once]`, which streams as models write or all at
// once, and `node servers.ts proxy PORT TARGET`, a reverse proxy that does nothing but pass bytes on.
import http from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'

/** Of a stream: 100 pieces, 20 a second, as models write. */
export const pieces = 100
export const pieceEveryMs = 50

const usage = { prompt_tokens: 20, completion_tokens: 100, total_tokens: 120 }
const answer = JSON.stringify({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  model: 'gpt-4o',
  choices: [
    { index: 0, message: { role: 'assistant', content: 'word '.repeat(100) }, finish_reason: 'stop' },
  ],
  usage,
})
const chunk = (fields: object): string =>
  `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', model: 'gpt-4o', ...fields })}\n\n`
const piece = chunk({ choices: [{ index: 0, delta: { content: 'word ' } }], usage: null })

async function provide(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  everyMs: number,
): Promise<void> {
  const chunks: Buffer[] = []
  for await (const part of request as AsyncIterable<Buffer>) chunks.push(part)
  const { stream } = JSON.parse(Buffer.concat(chunks).toString()) as { stream?: boolean }
  response.writeHead(200, { 'content-type': stream ? 'text/event-stream' : 'application/json' })
  if (!stream) return void response.end(answer)
  for (let i = 0; i < pieces; i++) {
    response.write(piece)
    if (everyMs > 0) await delay(everyMs)
  }
  response.end(`${chunk({ choices: [], usage })}data: [DONE]\n\n`)
}

const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity })
function pass(request: http.IncomingMessage, response: http.ServerResponse, target: string): void {
  const { method, headers, url } = request
  const asking = http.request(`${target}${url}`, { method, headers, agent }, (got) => {
    response.writeHead(got.statusCode ?? 502, got.headers)
    got.pipe(response)
  })
  request.pipe(asking)
}

if (import.meta.main) {
  const [kind, port, target = ''] = process.argv.slice(2)
  http
    .createServer((request, response) => {
      if (kind === 'provider') void provide(request, response, target === 'at-once' ? 0 : pieceEveryMs)
      else pass(request, response, target)
    })
    .listen(Number(port), '127.0.0.1', 4_096)
}
