import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { askHost, connectHost } from '../../api/compute/observation/data-plane.ts'
import type { HostReport } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { Unavailable } from '../../lib/problem.ts'
import { Host } from '../../models/compute/hosts.ts'
import { observe } from '../../models/compute/observe.ts'
import { tellPart } from '../../models/compute/tell-part.ts'
import { insertHost } from '../support/inserted-hosts.ts'
import { emptyReport } from '../support/reports.ts'

// A host that lies about where it is must not make the platform send requests elsewhere.

const asked: string[] = []
let inside: Server
let host: Server
let hostId: string

const urlOf = (server: Server): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`

beforeAll(async () => {
  inside = createServer((request, response) => {
    asked.push(request.url ?? '')
    response.end('{"secret":true}')
  })
  host = createServer((_request, response) =>
    response.writeHead(307, { location: `${urlOf(inside)}/inside` }).end(),
  )
  for (const server of [inside, host]) await once(server.listen(0, '127.0.0.1'), 'listening')
  hostId = (await insertHost({ data_plane_url: urlOf(host) }))._id
})
afterAll(async () => {
  for (const server of [inside, host]) {
    server.closeAllConnections()
    await once(server.close(), 'close')
  }
})

test('the platform follows no redirect of a host', async () => {
  const { signal } = new AbortController()
  const none = new URLSearchParams()
  await expect(askHost(hostId, newId(), 'logs', none, signal)).rejects.toBeInstanceOf(Unavailable)
  await expect(connectHost(hostId, newId(), 'console', none)).rejects.toBeInstanceOf(Unavailable)
  await expect(tellPart('networks', [hostId])).rejects.toThrow()
  expect(asked).toEqual([])
})

const report = (data_plane_url: string): HostReport => emptyReport({ data_plane_url })

test('a host reports another port, and never another address', async () => {
  const reached = async (): Promise<unknown> => (await Host.findById(hostId).orFail().lean()).data_plane_url

  expect(await observe(hostId, report('http://127.0.0.1:9'))).toMatchObject({
    data_plane_url: 'http://127.0.0.1:9',
  })
  expect(await reached()).toBe('http://127.0.0.1:9')
  for (const lie of ['http://169.254.169.254:80', 'http://localhost:9', 'https://127.0.0.1.example:9']) {
    expect(await observe(hostId, report(lie))).toMatchObject({ data_plane_url: 'http://127.0.0.1:9' })
    expect(await reached()).toBe('http://127.0.0.1:9')
  }
})
