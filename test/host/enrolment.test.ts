import { X509Certificate } from 'node:crypto'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import type { PublicKey } from '../../lib/host-protocol.ts'
import { enrolled, planeIdentity } from '../../worker/host/enrolment.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-host-'))
})
afterEach(() => rm(folder, { recursive: true }))

const state = (): string => join(folder, 'state')
const answer = { host_id: 'host-1', jwks: { keys: [] } }

test('a host enrols once, and is the same host after a restart', async () => {
  const first = await enrolled(state(), async () => answer)
  const second = await enrolled(state(), () => Promise.reject(new Error('asked again')))
  expect(first.hostId).toBe('host-1')
  expect(second.hostId).toBe('host-1')
})

test('a host that was killed during its enrolment retries with the same key', async () => {
  const keys: PublicKey[] = []
  const killed = enrolled(state(), (key) => {
    keys.push(key)
    return Promise.reject(new Error('killed'))
  })
  await expect(killed).rejects.toThrow('killed')
  await writeFile(join(state(), 'host.json.new'), '{"host_id": "ha') // killed while it wrote the file
  await enrolled(state(), async (key) => {
    keys.push(key)
    return answer
  })
  expect(keys[1]).toEqual(keys[0])
})

test('a host’s private key is readable by its user alone, and is not sent', async () => {
  let sent: unknown
  await enrolled(state(), async (key) => {
    sent = key
    return answer
  })
  expect(Object.keys(sent as object).toSorted()).toEqual(['crv', 'kty', 'x'])
  const path = join(state(), 'key.json')
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  expect(JSON.parse(await readFile(path, 'utf8'))).toMatchObject({ kty: 'OKP', d: expect.any(String) })
})

test('a host makes its certificate once, for its user alone, and a new one if the file is removed', async () => {
  const first = await planeIdentity(state())
  expect(await planeIdentity(state())).toEqual(first)
  const path = join(state(), 'data-plane.json')
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  const { validFromDate, validToDate } = new X509Certificate(first.certificate)
  expect(validFromDate.getTime()).toBeLessThan(Date.now() - 3_600_000) // the API's clock may be behind
  expect(validToDate.getFullYear() - new Date().getFullYear()).toBe(100)
  await rm(path)
  expect((await planeIdentity(state())).certificate).not.toBe(first.certificate)
})
