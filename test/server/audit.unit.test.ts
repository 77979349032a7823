import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { advisoriesOf, advisoryFaults } from '../../script/audit.ts'

// npm against a registry with one package and its advisories.

let folder: string
let server: Server
let registry: string
let advisories: object[] | null // null: the registry offers none

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'audit-'))
  const dependencies = { leaky: '1.0.0' }
  const packages = {
    '': { name: 'a', version: '1.0.0', dependencies },
    'node_modules/leaky': { version: '1.0.0' },
  }
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'a', version: '1.0.0', dependencies }))
  await writeFile(
    join(folder, 'package-lock.json'),
    JSON.stringify({ name: 'a', version: '1.0.0', lockfileVersion: 3, requires: true, packages }),
  )
  server = createServer((request, response) => {
    const answer = request.method === 'GET' ? leaky : advisories && { leaky: advisories }
    response.writeHead(answer ? 200 : 405, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  registry = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
})
afterEach(async () => {
  server.close()
  server.closeAllConnections()
  await rm(folder, { recursive: true })
})

const leaky = {
  name: 'leaky',
  'dist-tags': { latest: '1.0.0' },
  versions: { '1.0.0': { name: 'leaky', version: '1.0.0', dist: { tarball: 'http://127.0.0.1/leaky.tgz' } } },
}
const advisory = (id: string, severity: string, vulnerable_versions = '<2.0.0') => ({
  id: 1,
  url: `https://github.com/advisories/${id}`,
  title: 'It leaks',
  severity,
  vulnerable_versions,
  cwe: [],
  cvss: { score: 8, vectorString: null },
})

test('the audit fails at a grave advisory for a version that is locked', async () => {
  advisories = [
    advisory('GHSA-aaaa-aaaa-aaaa', 'high'),
    { ...advisory('GHSA-bbbb-bbbb-bbbb', 'moderate'), id: 2 },
    { ...advisory('GHSA-cccc-cccc-cccc', 'critical', '>=2.0.0'), id: 3 },
  ]
  const found = (await advisoriesOf(folder, registry)) ?? []
  const fault = 'leaky: It leaks (high, GHSA-aaaa-aaaa-aaaa)'
  expect(advisoryFaults(found, [], '2026-11-25')).toEqual([fault])

  const accepted = [{ id: 'GHSA-aaaa-aaaa-aaaa', reason: 'it is never called', until: '2026-11-25' }]
  expect(advisoryFaults(found, accepted, '2026-11-25')).toEqual([])
  expect(advisoryFaults(found, accepted, '2026-11-26')).toEqual([fault])
})

test('the audit finds nothing where there is nothing', async () => {
  advisories = []
  expect(await advisoriesOf(folder, registry)).toEqual([])
})

test('the audit tells a registry without advisories from one that has none for us', async () => {
  advisories = null
  expect(await advisoriesOf(folder, registry)).toBeNull()
  expect(await advisoriesOf(folder, 'http://127.0.0.1:1/')).toBeNull()
})

test('the audit fails without a lock file', async () => {
  await rm(join(folder, 'package-lock.json'))
  await expect(advisoriesOf(folder, registry)).rejects.toThrow('ENOLOCK')
})
