import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import Docker from 'dockerode'
import { afterEach, expect, test } from '@jest/globals'
import { connection } from '../../../drivers/docker/connection.ts'
import { pullImage } from '../../../drivers/docker/images.ts'

// An engine that has no image, and answers a pull as little as one does whose registry is silent.

let server: Server
afterEach(() => {
  server.closeAllConnections()
  server.close()
})

async function silentPull(isFrozen: boolean): Promise<unknown> {
  let asked = false
  server = createServer((request, response) => {
    if (request.url?.startsWith('/images/create')) asked = true
    else if (request.url?.endsWith('/_ping')) {
      if (!(asked && isFrozen)) response.end('OK')
    } else response.writeHead(404, { 'content-type': 'application/json' }).end('{"message":"no such image"}')
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const docker = new Docker(connection(`http://127.0.0.1:${(server.address() as AddressInfo).port}`))
  return pullImage(docker, 'registry.example/app:1', {}).catch((error: unknown) => error)
}

test('a pull from a silent registry fails as image_not_found', async () => {
  expect(await silentPull(false)).toMatchObject({ code: 'image_not_found', permanent: true })
})

test('a pull on an engine that freezes meanwhile is to be tried again', async () => {
  expect(await silentPull(true)).toMatchObject({ code: 'engine_unavailable', permanent: false })
})
