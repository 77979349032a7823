import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request } from 'node:https'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { testLong } from '../support/long-tests.ts'
import { type Authority, type Identity, makeAuthority } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { type OwnApi, startOwnApi } from '../support/own-api.ts'

// An API process with a certificate.

let folder: string
let authority: Authority
let api: OwnApi
let port: number

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-tls-'))
  authority = await makeAuthority()
  await use(await authority.issue(['localhost', '127.0.0.1']))
  api = await startOwnApi({
    KEELSON_TLS_CERT_FILE: join(folder, 'cert.pem'),
    KEELSON_TLS_KEY_FILE: join(folder, 'key.pem'),
  })
  port = Number(new URL(api.url).port)
})
afterAll(async () => {
  await api.stop()
  await rm(folder, { recursive: true })
})

async function use({ cert, key }: Identity): Promise<void> {
  await writeFile(join(folder, 'key.pem'), key)
  await writeFile(join(folder, 'cert.pem'), cert)
}

const get = (path: string): Promise<{ status: number | undefined; body: string; hsts: unknown }> =>
  new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path, ca: authority.cert, agent: false }, (answer) => {
      const hsts = answer.headers['strict-transport-security']
      text(answer).then((body) => resolve({ status: answer.statusCode, body, hsts }), reject)
    })
    asked.on('error', reject).end()
  })

/** The serial number of the certificate that a new connection gets. */
const serial = (): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket: TLSSocket = connectTls({ port, host: '127.0.0.1', ca: authority.cert }, () => {
      resolve(socket.getPeerCertificate().serialNumber)
      socket.destroy()
    })
    socket.on('error', reject)
  })

describe('the API with a certificate', () => {
  test('serves HTTPS, with HSTS', async () => {
    expect(await get('/api/v1/account')).toMatchObject({
      status: 401,
      hsts: expect.stringContaining('max-age='),
    })
  })

  test('does not serve HTTP', async () => {
    await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow()
  })

  test('refuses TLS 1.1', async () => {
    const old = new Promise((resolve, reject) => {
      const options = {
        port,
        host: '127.0.0.1',
        ca: authority.cert,
        minVersion: 'TLSv1',
        maxVersion: 'TLSv1.1',
      } as const
      connectTls({ ...options, ciphers: 'DEFAULT@SECLEVEL=0' }, () => resolve('let in')).on('error', reject)
    })
    await expect(old).rejects.toThrow()
  })

  test('uses a renewed certificate without a restart', async () => {
    const before = await serial()
    await use(await authority.issue(['localhost', '127.0.0.1']))
    await eventually(async () => (await serial()) !== before)
  })

  test('keeps the former certificate if the new one cannot be used', async () => {
    const before = await serial()
    await writeFile(join(folder, 'cert.pem'), 'no certificate')
    await eventually(async () => api.log().includes('not usable'))
    expect(await serial()).toBe(before)
  })
})

describe('a connection that sends slowly', () => {
  // A client is given 20 s; the test takes a little longer.
  testLong('is closed with 408, whatever it still sends', async () => {
    const plain = await startOwnApi({})
    const socket = connect(Number(new URL(plain.url).port), '127.0.0.1')
    socket.write('GET /healthz HTTP/1.1\r\n')
    const drip = setInterval(() => socket.write('X: y\r\n'), 1_000)
    try {
      expect(await text(socket)).toContain('408 Request Timeout')
    } finally {
      clearInterval(drip)
      await plain.stop()
    }
  })
})
