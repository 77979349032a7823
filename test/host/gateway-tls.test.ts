import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect as connectTo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer, type Server } from 'node:tls'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Connection } from '@temporalio/client'
import { NativeConnection, type TLSConfig } from '@temporalio/worker'
import { type Gateway, openGateway } from '../../gateway/gateway.ts'
import { makeLogger } from '../../lib/log.ts'
import { temporalConnection } from '../../lib/temporal.ts'
import { gatewayToken } from '../../lib/party-tokens.ts'
import { makeAuthority } from '../support/certificates.ts'
import { CallingHost } from '../support/host-calls.ts'
import { stackSettings } from '../support/stack.ts'

// TLS on both sides of the gateway: hosts to it, and the platform's roles to Temporal with a client certificate.

const settings = stackSettings()
let folder: string
let files: Record<'ca' | 'cert' | 'key' | 'clientCert' | 'clientKey', string>
let temporal: Server
let gateway: Gateway
let host: CallingHost

/** Temporal behind TLS: it takes only clients with a certificate of the authority. */
async function serveTemporal(tls: { ca: string; cert: string; key: string }): Promise<Server> {
  const [address = '', port] = settings.KEELSON_TEMPORAL_ADDRESS.split(':')
  const options = { ...tls, requestCert: true, rejectUnauthorized: true, ALPNProtocols: ['h2'] }
  const server = createServer(options, (socket) => {
    const inner = connectTo(Number(port), address)
    socket.on('error', () => inner.destroy())
    inner.on('error', () => socket.destroy())
    socket.pipe(inner).pipe(socket)
  })
  server.on('tlsClientError', () => {}) // a client without a certificate
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return server
}

const withTls = (more: Record<string, string> = {}) => ({
  ...settings,
  KEELSON_TEMPORAL_ADDRESS: `127.0.0.1:${(temporal.address() as AddressInfo).port}`,
  KEELSON_TEMPORAL_TLS_CA_FILE: files.ca,
  ...more,
})
const withCertificate = () =>
  withTls({
    KEELSON_TEMPORAL_TLS_CERT_FILE: files.clientCert,
    KEELSON_TEMPORAL_TLS_KEY_FILE: files.clientKey,
  })

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'gateway-tls-'))
  const authority = await makeAuthority()
  const [server, client] = [await authority.issue(['127.0.0.1']), await authority.issue(['keelson'])]
  const contents = {
    ca: authority.cert,
    cert: server.cert,
    key: server.key,
    clientCert: client.cert,
    clientKey: client.key,
  }
  files = Object.fromEntries(
    Object.keys(contents).map((name) => [name, join(folder, `${name}.pem`)]),
  ) as typeof files
  for (const [name, text] of Object.entries(contents)) await writeFile(join(folder, `${name}.pem`), text)
  temporal = await serveTemporal({ ca: authority.cert, ...server })
  gateway = await openGateway(
    {
      ...withCertificate(),
      KEELSON_GATEWAY_HOST: '0.0.0.0',
      KEELSON_GATEWAY_PORT: 0,
      KEELSON_GATEWAY_PLAINTEXT: 'false',
      KEELSON_GATEWAY_TLS_CERT_FILE: files.cert,
      KEELSON_GATEWAY_TLS_KEY_FILE: files.key,
    },
    makeLogger('gateway', 'fatal'),
  )
  host = await CallingHost.enrol()
})
afterAll(async () => {
  await host.close()
  await gateway.close()
  temporal.close()
  await rm(folder, { recursive: true })
})

test('clients and workers reach Temporal with their certificate, and not without', async () => {
  const client = Connection.lazy(temporalConnection(withCertificate()))
  await expect(client.workflowService.getSystemInfo({})).resolves.toBeDefined()
  await client.close()
  const worker = await NativeConnection.connect(temporalConnection(withCertificate()))
  await worker.close()

  await expect(NativeConnection.connect(temporalConnection(withTls()))).rejects.toThrow()
  const stranger = Connection.lazy({ ...temporalConnection(withTls()), interceptors: [] })
  await expect(stranger.workflowService.getSystemInfo({})).rejects.toMatchObject({ code: 14 })
  await stranger.close()
})

test('a host’s worker reaches the gateway by TLS, if it trusts the certificate, and Temporal behind it', async () => {
  const authorization = `Bearer ${await gatewayToken({ party: host.party, key: host.key })}`
  const connect = (tls: TLSConfig | boolean): Promise<NativeConnection> =>
    NativeConnection.connect({
      address: `127.0.0.1:${gateway.port}`,
      tls,
      metadata: { authorization },
      grpcCompression: { codec: 'none' },
    })
  const trusting = await connect(temporalConnection(withTls()).tls)
  await trusting.close()
  for (const untrusting of [true, false]) await expect(connect(untrusting)).rejects.toThrow('transport')
})
