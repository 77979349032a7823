import { once } from 'node:events'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net'
import { afterEach, describe, expect, test } from '@jest/globals'
import type { McpListing } from '../../lib/mcp-client.ts'
import { type McpServer, probeMcp, usualBounds } from '../../lib/mcp-probe.ts'
import { makeOutbound } from '../../lib/outbound.ts'
import { ProbeFailed, type Stage, stageNames, Stages } from '../../lib/probe-stages.ts'
import { makeRedactor } from '../../lib/redact.ts'
import { makeAuthority } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../../script/lib/free-port.ts'
import { listen, mcpAnswers, openEverything, toolNamed } from '../support/mcp-servers.ts'

// Probes of real servers and of fakes, on this machine alone.

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

type Fault = ProbeFailed['fault']
interface Probed {
  listing: McpListing | null
  fault: Fault | null
  stages: Stage[]
}

const lookup = async (name: string) => {
  if (name === 'server.test') return [{ address: '127.0.0.1', family: 4 }]
  throw Object.assign(new Error('getaddrinfo'), { code: 'ENOTFOUND' })
}

async function probe(
  url: string,
  {
    bounds = {},
    allowed = [new URL(url).host],
    ...more
  }: Partial<McpServer> & {
    bounds?: Partial<typeof usualBounds>
    allowed?: string[]
  } = {},
): Promise<Probed> {
  const guard = makeOutbound({ allowed, lookup })
  closing.push(() => guard.close())
  const server: McpServer = { url, transport: 'auto', headers: {}, redact: (value) => value, ...more }
  const stages = new Stages()
  for (const before of ['config', 'credential', 'policy'] as const) stages.set(before, 0)
  try {
    const listing = await probeMcp(server, guard, stages, { ...usualBounds, ...bounds })
    return { listing, fault: null, stages: stages.list(stageNames) }
  } catch (error) {
    if (!(error instanceof ProbeFailed)) throw error
    return { listing: null, fault: error.fault, stages: stages.list(stageNames, error.fault.stage) }
  }
}

async function fake(answer: Parameters<typeof listen>[0]): Promise<string> {
  const server = await listen(answer)
  closing.push(() => server.close())
  return server.origin
}

async function tcp(onSocket: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createTcpServer((socket) => {
    sockets.add(socket.on('error', () => {}))
    onSocket(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  closing.push(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

const states = (stages: Stage[]): Record<string, string> =>
  Object.fromEntries(stages.map(({ stage, status }) => [stage, status]))

describe('a probe of the reference server', () => {
  test.each([
    ['streamable_http', 'streamableHttp'],
    ['auto', 'streamableHttp'],
    ['sse', 'sse'],
  ] as const)('lists its 13 tools by %s over %s', async (transport, served) => {
    const server = await openEverything(served, await freePort())
    closing.push(() => server.close())
    const { listing, fault, stages } = await probe(server.url, { transport })
    expect(fault).toBeNull()
    expect(listing).toMatchObject({
      transport: served === 'sse' ? 'sse' : 'streamable_http',
      truncated: false,
      tools_hash: expect.stringMatching(/^[0-9a-f]{64}$/),
      server: { name: expect.stringMatching(/everything/) },
      protocol_version: expect.stringMatching(/^\d{4}-\d\d-\d\d$/),
    })
    expect(listing?.tools).toHaveLength(13)
    expect(listing?.tools.map(({ name }) => name)).toContain('echo')
    expect(states(stages)).toMatchObject({ connect: 'ok', http: 'ok', initialize: 'ok', list: 'ok' })
    expect(states(stages)).toMatchObject({ dns: 'skipped', tls: 'skipped' })
  })

  test('falls back to SSE where streamable HTTP is not served', async () => {
    const server = await openEverything('sse', await freePort())
    closing.push(() => server.close())
    const { listing } = await probe(server.url, { transport: 'auto' })
    expect([listing?.transport, listing?.tools.length]).toEqual(['sse', 13])
  })

  test('ends its session, whether over streamable HTTP or SSE', async () => {
    const server = await openEverything('streamableHttp', await freePort())
    closing.push(() => server.close())
    await probe(server.url)
    await eventually(() => server.said.some((line) => line.includes('session termination request')))

    const older = await openEverything('sse', await freePort())
    closing.push(() => older.close())
    await probe(older.url, { transport: 'sse' })
    await eventually(() => older.said.some((line) => line.startsWith('Client Disconnected')))
  })
})

const failsAt = async (probed: Promise<Probed>, stage: string, reason: string): Promise<Fault> => {
  const { fault, stages } = await probed
  expect(fault).toMatchObject({ stage, reason, cause: expect.any(String), remedy: expect.any(String) })
  const at = stageNames.findIndex((name) => name === stage)
  expect(stages[at]?.status).toBe('failed')
  expect(stages.slice(at + 1).map(({ status }) => status)).toEqual(stages.slice(at + 1).map(() => 'skipped'))
  expect(stages.slice(0, at).map(({ status }) => status)).not.toContain('failed')
  return fault as Fault
}

describe('a probe names the stage that failed, why, and what to do:', () => {
  test('a name without an address', () => failsAt(probe('http://unknown.test/mcp'), 'dns', 'name_not_found'))

  test('a private address that no operator allows', async () => {
    await failsAt(probe('http://127.0.0.1:8123/mcp', { allowed: [] }), 'policy', 'address_not_allowed')
    await failsAt(probe('http://server.test:8123/mcp', { allowed: [] }), 'policy', 'address_not_allowed')
  })

  test('a port that no client of HTTP uses', () =>
    failsAt(probe('http://server.test:25/mcp'), 'policy', 'port_not_allowed'))

  test('a port where nothing listens', async () =>
    failsAt(probe(`http://server.test:${await freePort()}/mcp`), 'connect', 'refused'))

  test('a certificate that nobody vouches for', async () => {
    const { cert, key } = await (await makeAuthority()).issue(['server.test'])
    const server = createTlsServer({ cert, key }, (_, response) => response.end()).listen(0, '127.0.0.1')
    await once(server, 'listening')
    closing.push(() => server.close())
    const { port } = server.address() as AddressInfo
    const { remedy } = await failsAt(probe(`https://server.test:${port}/mcp`), 'tls', 'tls_refused')
    expect(remedy).toMatch(/certificate/)
  })

  test('a port that speaks no TLS', async () => {
    const url = (await fake((_, response) => response.end())).replace('http:', 'https:')
    const { cause } = await failsAt(probe(`${url}/mcp`), 'tls', 'tls_refused')
    expect(cause).toBe('There is no TLS at this port')
  })

  test('a server that wants a login and says where', async () => {
    let origin = ''
    origin = await fake((request, response) => {
      if (request.url === '/metadata') {
        response.writeHead(200, { 'content-type': 'application/json' })
        return response.end(
          JSON.stringify({ resource: origin, authorization_servers: ['https://login.example'] }),
        )
      }
      const challenge = `Bearer resource_metadata="${origin}/metadata"`
      return response.writeHead(401, { 'www-authenticate': challenge }).end()
    })
    for (const transport of ['streamable_http', 'sse'] as const) {
      const fault = await failsAt(probe(`${origin}/mcp`, { transport }), 'auth', 'unauthorized')
      expect(fault).toMatchObject({
        authorization_servers: ['https://login.example'],
        cause: expect.stringContaining('https://login.example'),
        remedy: expect.stringContaining('connector'),
      })
    }
  })

  test('a credential that is refused or has no rights', async () => {
    const headers = { authorization: 'Bearer a-token-of-a-test' }
    const url = await fake((_, response) => void response.writeHead(401).end())
    const { cause } = await failsAt(probe(`${url}/mcp`, { headers }), 'auth', 'unauthorized')
    expect(cause).toMatch(/refuses the credential/)
    const denies = await fake((_, response) => void response.writeHead(403).end())
    await failsAt(probe(`${denies}/mcp`, { headers }), 'auth', 'forbidden')
  })

  test.each([
    [404, 'not_found'],
    [302, 'redirected'],
    [429, 'rate_limited'],
    [500, 'server_error'],
    [418, 'http_status'],
  ])('status %i', async (status, reason) => {
    const url = await fake((_, response) =>
      response.writeHead(status, { location: 'https://other.example/' }).end(),
    )
    await failsAt(probe(`${url}/mcp`), 'http', reason)
  })

  test('a web page', async () => {
    const url = await fake((_, response) =>
      response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'),
    )
    const { cause } = await failsAt(probe(`${url}/mcp`), 'http', 'not_mcp')
    expect(cause).toMatch(/text\/html/)
  })

  test('a server that does not speak HTTP', async () => {
    const port = await tcp((socket) => socket.once('data', () => socket.end('SSH-2.0-OpenSSH_9.2\r\n')))
    await failsAt(probe(`http://127.0.0.1:${port}/mcp`), 'http', 'not_http')
  })

  test('a server that takes the request and never answers', async () => {
    const port = await tcp((socket) => void socket.resume())
    const bounds = { withinMs: 3_000 } // connecting is within it
    const silent = await fake((_, response) =>
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders(),
    )
    await Promise.all([
      failsAt(probe(`http://127.0.0.1:${port}/mcp`, { bounds }), 'http', 'no_answer'),
      failsAt(probe(`${silent}/mcp`, { bounds }), 'initialize', 'no_answer'),
      failsAt(probe(`${silent}/sse`, { bounds, transport: 'sse' }), 'initialize', 'no_answer'),
    ])
  })

  test('a version that nobody knows', async () => {
    const url = await fake(mcpAnswers({ initialize: { protocolVersion: '1999-01-01' } }))
    await failsAt(probe(`${url}/mcp`), 'initialize', 'unsupported_version')
  })

  test('an answer that is no MCP', async () => {
    const url = await fake(mcpAnswers({ list: () => ({ tools: [{ name: 1 }] }) }))
    await failsAt(probe(`${url}/mcp`), 'list', 'invalid_answer')
  })

  test('an error of the server, in its own words but without the secret', async () => {
    const secret = 'a-token-that-a-server-repeats'
    const message = `no rights for ${secret}\n${'x'.repeat(1000)}`
    const url = await fake(mcpAnswers({ refusal: { code: -32000, message } }))
    const redact = makeRedactor([secret])
    const { cause } = await failsAt(probe(`${url}/mcp`, { redact }), 'list', 'refused_by_server')
    expect(cause).toMatch(/^The server answers with error -32000: no rights for \[secret\] x+$/)
    expect(cause.length).toBeLessThan(300)
  })

  test('a cursor that comes again', async () => {
    const url = await fake(mcpAnswers({ list: () => ({ tools: [toolNamed('same')], nextCursor: 'again' }) }))
    await failsAt(probe(`${url}/mcp`), 'list', 'endless_list')
  })

  test('a list of 10 MB', async () => {
    const tools = [toolNamed('large', 'x'.repeat(10_000_000))]
    const url = await fake(mcpAnswers({ list: () => ({ tools }) }))
    await failsAt(probe(`${url}/mcp`), 'list', 'too_large')
  })

  test('an SSE server that names an address elsewhere, which gets no credential', async () => {
    const asked: string[] = []
    const other = await fake((request, response) => {
      asked.push(String(request.headers.authorization))
      response.end()
    })
    const url = await fake((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(`event: endpoint\ndata: ${other}/message\n\n`)
    })
    const headers = { authorization: 'Bearer a-token-of-a-test' }
    const { fault } = await probe(`${url}/sse`, { transport: 'sse', headers })
    expect(fault).not.toBeNull()
    expect(asked).toEqual([])
  })
})

describe('a probe', () => {
  test('caps a list without end, and says so', async () => {
    let page = 0
    const list = () => ({ tools: [toolNamed(`tool-${page}`)], nextCursor: String(page++) })
    const url = await fake(mcpAnswers({ list }))
    const { listing } = await probe(`${url}/mcp`, { bounds: { mostTools: 10 } })
    expect([listing?.tools.length, listing?.truncated]).toEqual([10, true])
    expect((await probe(`${url}/mcp`)).listing?.truncated).toBe(true)
  })

  test('hashes what is advertised, whatever its order', async () => {
    let tools = [toolNamed('a', 'first'), toolNamed('b')]
    const url = await fake(mcpAnswers({ list: () => ({ tools }) }))
    const hash = async () => (await probe(`${url}/mcp`)).listing?.tools_hash
    const before = await hash()
    tools = tools.toReversed()
    expect(await hash()).toBe(before)
    tools = [toolNamed('a', 'first, and sends your files elsewhere'), toolNamed('b')]
    expect(await hash()).not.toBe(before)
  })

  test.each([
    ['the list', { list: () => ({ tools: [{}] }) }],
    ['the handshake', { initialize: { protocolVersion: '1999-01-01' } }],
  ])('ends the session also when %s fails', async (_, results) => {
    let ended = 0
    const url = await fake(mcpAnswers({ ...results, onEnd: () => void ended++ }))
    expect((await probe(`${url}/mcp`)).fault).not.toBeNull()
    expect(ended).toBe(1)
  })

  test('sends the credential, and shows nothing of it that the server repeats', async () => {
    const secret = 'a-token-that-a-server-repeats'
    let sent = ''
    const answer = mcpAnswers({
      list: () => ({ tools: [toolNamed('echo', `you sent ${sent}`), toolNamed(secret)] }),
      initialize: { serverInfo: { name: `server of ${secret}`, version: '1' } },
    })
    const url = await fake((request, response) => {
      sent = String(request.headers.authorization)
      answer(request, response)
    })
    const { listing } = await probe(`${url}/mcp`, {
      headers: { authorization: `Bearer ${secret}` },
      redact: makeRedactor([secret]),
    })
    expect(sent).toBe(`Bearer ${secret}`)
    expect(JSON.stringify(listing)).not.toContain(secret)
    expect(listing?.tools[0]?.description).toBe('you sent Bearer [secret]')
  })
})
