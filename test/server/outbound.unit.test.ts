import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { createServer as createTcpServer, type AddressInfo, type Socket } from 'node:net'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { afterEach, describe, expect, test } from '@jest/globals'
import { isPublic, makeOutbound, type Outbound } from '../../lib/outbound.ts'
import { makeAuthority } from '../support/certificates.ts'

// The guarded fetch, against servers on this machine alone. No address of another machine is connected to: a public one
// is only ever checked.

const asked = { method: 'GET', withinMs: 5_000, mostBytes: 1000 } as const
const refused = { code: 'address_not_allowed', message: 'The URL does not lead to a public address' }
const closing: (() => unknown)[] = []

afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

/** A server on this machine, and what has reached it. */
async function listening(answer: RequestListener = (_, response) => void response.end('hello')) {
  const requests: IncomingMessage[] = []
  const server = createServer((request, response) => {
    requests.push(request)
    answer(request, response)
  })
  return { requests, port: await open(server) }
}

async function open(server: Pick<Server, 'listen' | 'address' | 'close' | 'once'>): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server as Server, 'listening')
  closing.push(() => server.close())
  return (server.address() as AddressInfo).port
}

function outbound(of: Parameters<typeof makeOutbound>[0] = {}): Outbound {
  const made = makeOutbound(of)
  closing.push(() => made.close())
  return made
}

const at = (address: string) => ({ address, family: address.includes(':') ? 6 : 4 })
const loopback = async () => [at('127.0.0.1')]

const privateAddresses: [address: string, what: string][] = [
  ['127.0.0.1', 'loopback'],
  ['127.8.9.10', 'loopback'],
  ['0.0.0.0', 'this machine'],
  ['10.1.2.3', 'private'],
  ['172.16.0.1', 'private'],
  ['192.168.1.1', 'private'],
  ['100.64.0.1', 'carrier-grade NAT'],
  ['169.254.169.254', 'metadata'],
  ['168.63.129.16', 'metadata of Azure'],
  ['192.0.2.1', 'documentation'],
  ['198.18.0.1', 'benchmarks'],
  ['224.0.0.1', 'multicast'],
  ['255.255.255.255', 'broadcast'],
  ['::', 'this machine'],
  ['::1', 'loopback'],
  ['fe80::1', 'link-local'],
  ['fd00:ec2::254', 'metadata'],
  ['::ffff:127.0.0.1', 'mapped IPv4'],
  ['::ffff:8.8.8.8', 'mapped IPv4'],
  ['::127.0.0.1', 'compatible IPv4'],
  ['64:ff9b::7f00:1', 'NAT64'],
  ['64:ff9b:1::7f00:1', 'NAT64 of one network'],
  ['2002:7f00:1::', '6to4'],
  ['2001:0:7f00:1::', 'Teredo'],
  ['2001:db8::1', 'documentation'],
  ['ff02::1', 'multicast'],
]

describe.each(privateAddresses)('the address %s (%s)', (address) => {
  test('is not public', () => {
    expect(isPublic(address)).toBe(false)
  })

  test('is refused as a literal and as the answer of a lookup', async () => {
    const literal = `http://${address.includes(':') ? `[${address}]` : address}/`
    expect(outbound().faultOf(literal)).toBe('address_not_allowed')
    await expect(outbound().fetch(literal, asked)).rejects.toMatchObject(refused)
    const named = outbound({ lookup: async () => [at(address)] })
    await expect(named.fetch('https://name.example/', asked)).rejects.toMatchObject(refused)
  })
})

test.each(['8.8.8.8', '1.1.1.1', '2606:4700:4700::1111'])('%s is public', (address) => {
  expect(isPublic(address)).toBe(true)
})

test.each([
  '2130706433',
  '0x7f000001',
  '0x7f.1',
  '0177.0.0.1',
  '127.1',
  '127.0.0.1.',
  '１２７.0.0.1',
  '[::ffff:7f00:1]',
])('the form %s of a private address is refused before a lookup', async (host) => {
  const never = outbound({ lookup: () => Promise.reject(new Error('looked up')) })
  expect(never.faultOf(`http://${host}/`)).toBe('address_not_allowed')
  await expect(never.fetch(`http://${host}/`, asked)).rejects.toMatchObject(refused)
})

test.each([
  'ftp://name.example/',
  'file:///etc/passwd',
  'http://user:password@name.example/',
  'name.example',
  '',
])('the URL “%s” is refused', (url) => {
  expect(outbound().faultOf(url)).toBe('not_a_url')
})

describe('a name', () => {
  test('whose answers are public and private is refused', async () => {
    const { requests, port } = await listening()
    const mixed = outbound({ lookup: async () => [at('8.8.8.8'), at('127.0.0.1')] })
    await expect(mixed.fetch(`http://name.example:${port}/`, asked)).rejects.toMatchObject(refused)
    expect(requests).toEqual([])
  })

  test('that leads to another address after the check is refused at the connection, before a byte is sent', async () => {
    const received: Buffer[] = []
    const sockets: Socket[] = []
    const port = await open(
      createTcpServer((socket) => {
        sockets.push(socket)
        socket.on('data', (bytes: Buffer) => received.push(bytes)).on('error', () => {})
      }) as unknown as Server,
    )
    let reads = 0
    const rebinding = {
      family: 4,
      get address() {
        return reads++ === 0 ? '8.8.8.8' : '127.0.0.1'
      },
    }
    const guarded = outbound({ lookup: async () => [rebinding] })
    for (const protocol of ['http', 'https']) {
      reads = 0
      await expect(guarded.fetch(`${protocol}://name.example:${port}/`, asked)).rejects.toMatchObject(refused)
    }
    await Promise.all(sockets.map(async (socket) => socket.destroyed || once(socket, 'close')))
    expect([sockets.length, received]).toEqual([2, []])
  })

  test('without an address says so', async () => {
    const missing = outbound({
      lookup: () => Promise.reject(Object.assign(new Error('no'), { code: 'ENOTFOUND' })),
    })
    await expect(missing.fetch('http://name.example/', asked)).rejects.toMatchObject({
      code: 'no_answer',
      message: 'Its name has no address',
    })
  })
})

test('a private address that listens and one that refuses get the same words', async () => {
  const { port } = await listening()
  const local = outbound({ lookup: loopback })
  const [listens, refuses] = await Promise.all(
    [port, 1].map((to) => local.fetch(`http://name.example:${to}/`, asked).catch((error: Error) => error)),
  )
  expect(listens).toMatchObject(refused)
  expect(listens).toEqual(refuses)
})

describe('a target that an operator allows', () => {
  test('is reached at its exact host and port, by name and as a literal', async () => {
    const { requests, port } = await listening()
    const one = outbound({ allowed: [`hooks.internal:${port}`, `127.0.0.1:${port}`], lookup: loopback })
    const answer = await one.fetch(`http://HOOKS.internal:${port}/a`, asked)
    expect([answer.status, answer.body.toString()]).toEqual([200, 'hello'])
    expect((await one.fetch(`http://127.0.0.1:${port}/b`, asked)).status).toBe(200)
    expect(requests.map(({ url }) => url)).toEqual(['/a', '/b'])
    expect(one.faultOf(`http://127.0.0.1:${port}/`)).toBeNull()
    expect(one.faultOf(`http://127.0.0.1:${port + 1}/`)).toBe('address_not_allowed')
    const exempt = [
      `http://hooks.internal:${port}/`,
      `http://hooks.internal:${port + 1}/`,
      'https://example.com',
    ]
    expect(exempt.map((url) => one.isExempt(url))).toEqual([true, false, false])
    for (const other of [`hooks.internal:${port + 1}`, `other.internal:${port}`])
      await expect(one.fetch(`http://${other}/`, asked)).rejects.toMatchObject(refused)
  })

  test('is followed by redirects within its origin, as many as are asked for', async () => {
    const { port } = await listening(({ url }, response) => {
      const step = Number(url?.slice(1))
      if (step === 3) response.end('there')
      else response.writeHead(302, { location: `/${step + 1}` }).end()
    })
    const one = outbound({ allowed: [`127.0.0.1:${port}`] })
    const redirected = async (redirects: number) =>
      (await one.fetch(`http://127.0.0.1:${port}/0`, { ...asked, redirects })).status
    expect([await redirected(0), await redirected(2), await redirected(3)]).toEqual([302, 302, 200])
  })

  test.each(['http://169.254.169.254/', 'http://name.example/', '//127.0.0.1:1/'])(
    'is not left for a redirect to %s',
    async (location) => {
      const { port } = await listening((_, response) => void response.writeHead(307, { location }).end())
      const one = outbound({ allowed: [`127.0.0.1:${port}`] })
      const answer = await one.fetch(`http://127.0.0.1:${port}/`, { ...asked, redirects: 5 })
      expect(answer.status).toBe(307)
    },
  )

  test('is read up to the limit, and given up when it does not end in time', async () => {
    const { port } = await listening(({ url }, response) => {
      response.write('x'.repeat(5000))
      if (url === '/whole') response.end()
    })
    const one = outbound({ allowed: [`127.0.0.1:${port}`] })
    const { body } = await one.fetch(`http://127.0.0.1:${port}/whole`, asked)
    expect(body.toString()).toBe('x'.repeat(1000))
    await expect(
      one.fetch(`http://127.0.0.1:${port}/`, { ...asked, withinMs: 200, mostBytes: 10_000 }),
    ).rejects.toMatchObject({ code: 'no_answer', message: 'It did not answer in time' })
  })

  test('is reached by TLS if its certificate is valid for its name', async () => {
    const authority = await makeAuthority()
    const { cert, key } = await authority.issue(['hooks.internal'])
    const port = await open(createTlsServer({ cert, key }, (_, response) => void response.end('sealed')))
    const allowed = [`hooks.internal:${port}`, `other.internal:${port}`]
    const one = outbound({ allowed, lookup: loopback })
    const untrusted = one.fetch(`https://hooks.internal:${port}/`, asked)
    await expect(untrusted).rejects.toMatchObject({ message: expect.stringContaining('TLS certificate') })
    const before = getCACertificates()
    setDefaultCACertificates([authority.cert])
    closing.push(() => setDefaultCACertificates(before))
    expect((await one.fetch(`https://hooks.internal:${port}/`, asked)).body.toString()).toBe('sealed')
    const misnamed = one.fetch(`https://other.internal:${port}/`, asked)
    await expect(misnamed).rejects.toMatchObject({ message: expect.stringContaining('TLS certificate') })
  })

  test('is not reached through a proxy of the environment', async () => {
    const { requests, port } = await listening()
    const proxy = await listening()
    process.env['http_proxy'] = `http://127.0.0.1:${proxy.port}`
    closing.push(() => delete process.env['http_proxy'])
    const one = outbound({ allowed: [`127.0.0.1:${port}`] })
    await one.fetch(`http://127.0.0.1:${port}/`, asked)
    expect([requests.length, proxy.requests.length]).toEqual([1, 0])
  })
})
