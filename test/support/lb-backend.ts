import { createServer } from 'node:http'
import { createSecureServer, createServer as createH2 } from 'node:http2'
import { createServer as createTcp, type Socket } from 'node:net'
import { WebSocketServer } from 'ws'

// Targets of load balancers: a program that says what reached it. It listens on all addresses of its namespace:
// HTTP/1 and HTTP/2 on port 80, the same with TLS on port 443. Started as `node lb-backend.ts KEY CERT`.

const [key = '', cert = ''] = process.argv.slice(2)
let healthStatus = 200

type Handler = Parameters<typeof createServer>[1] & object
type Request = Parameters<Handler>[0]
type Response = Parameters<Handler>[1]

function answer(request: Request, response: Response): void {
  const url = new URL(request.url ?? '/', 'http://x')
  const asked = url.searchParams
  if (url.pathname === '/health') return void response.writeHead(healthStatus).end()
  if (asked.has('health')) healthStatus = Number(asked.get('health'))
  if (asked.has('events')) return stream(response, Number(asked.get('events')))
  let bytes = 0
  let body = ''
  request.on('data', (part: Buffer) => {
    bytes += part.length
    if (body.length < 1000) body += String(part)
  })
  request.on('end', () => {
    const { socket } = request
    const said = JSON.stringify({
      method: request.method,
      url: request.url,
      version: request.httpVersion,
      headers: request.headers,
      address: socket.localAddress,
      from: socket.remoteAddress,
      sni: (socket as { servername?: string }).servername ?? null,
      bytes,
      body,
    })
    const send = (): void => {
      response.setHeader('x-target', 'as it was')
      response.setHeader('content-type', 'application/json')
      response.statusCode = Number(asked.get('status') ?? 200)
      response.end(said)
    }
    const wait = Number(asked.get('wait') ?? 0)
    if (wait > 0) setTimeout(send, wait)
    else send()
  })
}

/** Server-sent events, a second apart. */
function stream(response: Response, count: number): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  let sent = 0
  const send = (): void => {
    response.write(`data: ${++sent}\n\n`)
    if (sent === count) response.end()
    else setTimeout(send, 1200)
  }
  send()
}

const sockets = new WebSocketServer({ noServer: true })
const h1 = createServer({ keepAliveTimeout: 60_000 }, answer)
h1.on('upgrade', (request, socket, head) =>
  sockets.handleUpgrade(request, socket, head, (ws) =>
    ws.on('message', (data: Buffer) => ws.send(`echo ${String(data)}`)),
  ),
)
const h2 = createH2((request, response) => answer(request as never, response as never))

createTcp((socket: Socket) => {
  socket.on('error', () => {})
  socket.once('data', (first: Buffer) => {
    socket.pause()
    socket.unshift(first)
    const server = first.toString('latin1', 0, 3) === 'PRI' ? h2 : h1
    server.emit('connection', socket)
    process.nextTick(() => socket.resume())
  })
}).listen(80, '0.0.0.0', () => console.log('ready'))

createSecureServer(
  { key: Buffer.from(key, 'base64'), cert: Buffer.from(cert, 'base64'), allowHTTP1: true },
  (request, response) => answer(request as never, response as never),
).listen(443, '0.0.0.0')

// Whatever comes, it comes back.
createTcp((socket: Socket) => {
  socket.on('error', () => {})
  socket.pipe(socket)
}).listen(7, '0.0.0.0')
