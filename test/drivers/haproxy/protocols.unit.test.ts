import { once } from 'node:events'
import { connect as connectH2 } from 'node:http2'
import { connect as connectTls } from 'node:tls'
import { expect, test } from '@jest/globals'
import { WebSocket } from 'ws'
import type { ListenerSpec } from '../../../drivers/load-balancers.ts'
import {
  applied,
  ask,
  authority,
  balancer,
  balancers,
  certificateFor,
  portOf,
  raw,
  route,
  target,
  withLoadBalancers,
} from '../../support/load-balancers.ts'

const listener = (port: number, over: Partial<ListenerSpec> = {}): ListenerSpec => ({
  port,
  host_port: null,
  protocol: 'http',
  certificate_ids: [],
  redirect_to_https: false,
  ...over,
})

/** The status, and where the request is redirected to. */
async function seen(port: number, host: string, more = {}) {
  const { status, headers } = await ask(port, '/a?b=c', { host, ...more })
  return [status, headers['location']]
}

/** One request over HTTP/2. */
async function askH2(
  origin: string,
  headers: Record<string, string>,
  body = '',
): Promise<{ status: number; text: string }> {
  const session = connectH2(origin, { ca: authority.cert, servername: 'a.test' })
  try {
    const stream = session.request(
      { ':path': '/', ':authority': 'a.test', ...headers },
      { endStream: body === '' },
    )
    if (body) stream.end(body)
    const [answered] = (await once(stream, 'response')) as [Record<string, number>]
    let text = ''
    for await (const part of stream) text += String(part)
    return { status: answered[':status'] ?? 0, text }
  } finally {
    session.close()
  }
}

withLoadBalancers('a load balancer', () => {
  test('serves each name with its certificate, by TLS 1.2 or later, and HTTP/2', async () => {
    const [first, second] = [await certificateFor('a.test'), await certificateFor('b.test', '*.b.test')]
    const spec = balancer({
      listeners: [listener(443, { protocol: 'https', certificate_ids: [first.id, second.id] })],
      certificates: [first, second],
      routes: [route()],
    })
    await applied(spec)
    const port = await portOf(spec.id, 443)
    const shown = async (servername: string): Promise<unknown> => {
      const socket = connectTls({
        host: '127.0.0.1',
        port,
        servername,
        ca: authority.cert,
        rejectUnauthorized: false,
      })
      await once(socket, 'secureConnect')
      const name = socket.getPeerCertificate().subject.CN
      socket.destroy()
      return name
    }
    expect(await shown('a.test')).toBe('a.test')
    expect(await shown('x.b.test')).toBe('b.test')
    expect(await shown('unknown.test')).toBe('a.test')
    const old = connectTls({
      host: '127.0.0.1',
      port,
      servername: 'a.test',
      minVersion: 'TLSv1',
      maxVersion: 'TLSv1.1',
      ciphers: 'DEFAULT@SECLEVEL=0',
    })
    await expect(once(old, 'secureConnect')).rejects.toThrow()

    const { status, text } = await askH2(`https://127.0.0.1:${port}`, {})
    const got = JSON.parse(text) as { headers: Record<string, string> }
    expect([status, got.headers['x-forwarded-proto'], got.headers['host']]).toEqual([200, 'https', 'a.test'])
    const { got: overH1 } = await ask(port, '/', { host: 'a.test', tls: {} })
    expect(overH1?.headers['forwarded']).toBe('for=127.0.0.1;proto=https;host="a.test"')
  })

  test('answers ACME’s challenges, and redirects everything else to HTTPS', async () => {
    const certificate = await certificateFor('a.test')
    const spec = balancer({
      listeners: [
        listener(80, { redirect_to_https: true }),
        listener(443, { protocol: 'https', certificate_ids: [certificate.id] }),
      ],
      certificates: [certificate],
      routes: [route()],
      challenges: [{ token: 'tok_en-1', key_authorization: 'tok_en-1.thumb' }],
    })
    await applied(spec)
    const [http, https] = [await portOf(spec.id, 80), await portOf(spec.id, 443)]
    const challenge = await ask(http, '/.well-known/acme-challenge/tok_en-1', { host: 'a.test' })
    expect([challenge.status, challenge.text]).toEqual([200, 'tok_en-1.thumb'])
    const other = await ask(http, '/a?b=c', { host: 'a.test' })
    expect([other.status, other.headers['location']]).toEqual([308, `https://a.test:${https}/a?b=c`])
  })

  test('redirects plain HTTP of single routes to HTTPS, and to ports as the client reaches them', async () => {
    const certificate = await certificateFor('a.test')
    const redirect = { status: 308, url: 'https://b.test{https_port}{path}' }
    const spec = balancer({
      listeners: [listener(80), listener(443, { protocol: 'https', certificate_ids: [certificate.id] })],
      certificates: [certificate],
      routes: [
        route({ host_match: 'a.test', redirect_to_https: true }),
        route({ host_match: 'www.test', redirect, targets: [] }),
        route({ host_match: 'plain.test' }),
      ],
    })
    await applied(spec)
    const [http, https] = [await portOf(spec.id, 80), await portOf(spec.id, 443)]
    expect(await seen(http, 'a.test')).toEqual([308, `https://a.test:${https}/a?b=c`])
    expect(await seen(http, 'a.test', { headers: { 'content-type': 'application/grpc' } })).toEqual([
      308,
      `https://a.test:${https}/a?b=c`,
    ])
    expect(await seen(https, 'a.test', { tls: {} })).toEqual([200, undefined])
    expect(await seen(http, 'www.test')).toEqual([308, `https://b.test:${https}/a?b=c`])
    expect(await seen(http, 'plain.test')).toEqual([200, undefined])

    const withoutTls = { ...spec, listeners: [listener(80)], certificates: [] }
    await applied(withoutTls)
    expect(await seen(http, 'a.test')).toEqual([200, undefined])
    expect(await seen(http, 'www.test')).toEqual([308, 'https://b.test/a?b=c'])
  })

  test('passes WebSockets, chunked and awaited bodies, and gRPC', async () => {
    const spec = balancer({ routes: [route()] })
    await applied(spec)
    const port = await portOf(spec.id)

    const ws = new WebSocket(`ws://127.0.0.1:${port}/ws`, { headers: { host: 'a.test' } })
    await once(ws, 'open')
    ws.send('hello')
    expect(String((await once(ws, 'message'))[0])).toBe('echo hello')
    ws.close()
    await once(ws, 'close')

    const body = 'x'.repeat(100_000)
    const chunked = await ask(port, '/', {
      method: 'POST',
      headers: { 'transfer-encoding': 'chunked' },
      body,
    })
    expect(chunked.got?.bytes).toBe(100_000)
    const awaited = await ask(port, '/', {
      method: 'POST',
      headers: { expect: '100-continue', 'content-length': '5' },
      body: 'hello',
    })
    expect(awaited.got?.bytes).toBe(5)

    const grpc = await askH2(
      `http://127.0.0.1:${port}`,
      { ':method': 'POST', 'content-type': 'application/grpc', te: 'trailers' },
      'call',
    )
    expect(JSON.parse(grpc.text)).toMatchObject({ version: '2.0', bytes: 4 })
    const plain = await askH2(`http://127.0.0.1:${port}`, {})
    expect(JSON.parse(plain.text)).toMatchObject({ version: '1.1' })
  })

  test('passes connections of a listener for TCP to the first route without conditions', async () => {
    const spec = balancer({
      listeners: [listener(7, { protocol: 'tcp' })],
      routes: [route({ backend_port: 7 }), route({ priority: 1, path_match: '/x' })],
    })
    await balancers.apply(spec)
    expect(await raw(await portOf(spec.id, 7), 'anything\0\r\n')).toBe('anything\0\r\n')
  })

  test('ends the TLS of a listener for TLS, and sends each listener’s connections to its own route', async () => {
    const certificate = await certificateFor('a.test')
    const spec = balancer({
      listeners: [
        listener(7, { protocol: 'tls', certificate_ids: [certificate.id] }),
        listener(8, { protocol: 'tcp' }),
        listener(80),
      ],
      certificates: [certificate],
      routes: [
        route({ listener_port: 7, backend_port: 7 }),
        route({ listener_port: 8, backend_port: 7 }),
        route({ priority: 200, path_match: '/x' }),
      ],
    })
    await applied(spec)
    const client = connectTls({
      port: await portOf(spec.id, 7),
      ca: authority.cert,
      servername: 'a.test',
    })
    client.write('anything\0\r\n')
    const [echoed] = (await once(client, 'data')) as [Buffer]
    client.destroy()
    expect(String(echoed)).toBe('anything\0\r\n')
    expect(await raw(await portOf(spec.id, 8), 'plain\r\n')).toBe('plain\r\n')
    const port = await portOf(spec.id)
    expect((await ask(port, '/')).status).toBe(404)
    expect((await ask(port, '/x')).status).toBe(200)
  })

  test('tells targets who the client is, and believes nothing that a client says of itself', async () => {
    const spec = balancer({ routes: [route()] })
    await applied(spec)
    const port = await portOf(spec.id)
    const headers = {
      forwarded: 'for=1.2.3.4',
      'x-forwarded-for': '1.2.3.4',
      'X-Forwarded-Proto': 'https',
      'x-forwarded-host': 'evil.test',
      'x-forwarded-prefix': '/admin',
      x_forwarded_for: '1.2.3.4',
      'x-real-ip': '1.2.3.4',
      'x-request-id': 'mine',
    }
    const { got } = await ask(port, '/', { headers, host: 'a.test' })
    const said = Object.entries(got?.headers ?? {}).filter(([name]) => /forwarded|real|request-id/.test(name))
    expect(Object.fromEntries(said)).toEqual({
      forwarded: 'for=127.0.0.1;proto=http;host="a.test"',
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-host': 'a.test',
      'x-forwarded-port': String(port),
      'x-forwarded-proto': 'http',
      'x-request-id': expect.stringMatching(/^[\da-f-]{36}$/),
    })
    expect(got?.from).toBe('10.9.0.2')
  })

  test('answers 404 without a route, and 503 without a healthy target', async () => {
    const spec = balancer({ routes: [route({ path_match: '/x', targets: [target({ state: 'stopped' })] })] })
    const state = await balancers.apply(spec)
    expect(state.targets).toMatchObject([{ health: 'unhealthy' }])
    const port = await portOf(spec.id)
    expect((await ask(port, '/')).status).toBe(404)
    expect((await ask(port, '/x')).status).toBe(503)
  })
})

/** The status lines in what came back. */
const statuses = (text: string): string[] =>
  [...text.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status]) => `${status}`)

withLoadBalancers('requests in disguise', () => {
  test('reach a target as one request, or not at all', async () => {
    const spec = balancer({ routes: [route({ path_match: '/' })] })
    await applied(spec)
    const port = await portOf(spec.id)
    const head = 'POST / HTTP/1.1\r\nHost: a.test\r\n'
    const hidden = 'GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n'
    const refused = {
      'two lengths': `${head}Content-Length: 0\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
      'a length that is a list': `${head}Content-Length: 0, ${hidden.length}\r\n\r\n${hidden}`,
      'a signed length': `${head}Content-Length: +5\r\n\r\nhello`,
      'a space before the colon': `${head}Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`,
      'an unknown encoding': `${head}Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\nhello`,
      'NUL in a header': `${head}X-A: a\0b\r\nContent-Length: 0\r\n\r\n`,
      'a bare CR in a header': `${head}X-A: a\rb: c\r\nContent-Length: 0\r\n\r\n`,
      'a bad chunk': `${head}Transfer-Encoding: chunked\r\n\r\nZ\r\n\r\n`,
      'two hosts': `GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n`,
      'a host that is no name': 'GET / HTTP/1.1\r\nHost: a.test";proto=https\r\n\r\n',
      'an absolute URI for another host': 'GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n',
      'no path': 'GET b.test HTTP/1.1\r\nHost: a.test\r\n\r\n',
      'a proxy’s request': 'CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n',
    }
    for (const [name, bytes] of Object.entries(refused)) {
      const text = await raw(port, bytes)
      expect([
        name,
        statuses(text).filter((status) => !/^(400|501|405|422)$/.test(status)),
        text.includes('/hidden'),
      ]).toEqual([name, [], false])
    }
  })

  test('are read by the encoding if there is a length too, and the length does not reach the target', async () => {
    const spec = balancer({ routes: [route()] })
    await applied(spec)
    const port = await portOf(spec.id)
    const smuggled = '0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n'
    const head = 'POST /first HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n'
    const text = await raw(port, `${head}Content-Length: ${smuggled.length}\r\n\r\n${smuggled}`)
    expect(text).not.toContain('"content-length"')
    // The rest is a request of its own, or the connection is closed: never a part of the first.
    expect(text).toContain('"bytes":0')
  })

  test('are written anew: a folded header is one line, an absolute URI becomes its path', async () => {
    const spec = balancer({ routes: [route()] })
    await applied(spec)
    const port = await portOf(spec.id)
    const folded = await raw(port, 'GET /fold HTTP/1.1\r\nHost: a.test\r\nX-A: one\r\n two: three\r\n\r\n')
    expect(folded).toMatch(/"x-a":"one +two: three"|^HTTP\/1.1 400/)
    const absolute = await raw(port, 'GET http://a.test/abs?q=1 HTTP/1.1\r\nHost: a.test\r\n\r\n')
    expect(absolute).toContain('"url":"/abs?q=1"')
  })
})
