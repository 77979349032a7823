import { createCipheriv, createHash } from 'node:crypto'
import { once } from 'node:events'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdtemp, rm, stat, truncate } from 'node:fs/promises'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import { afterAll, beforeAll, expect } from '@jest/globals'
import { pack } from 'tar-stream'
import { applicationsOf } from '../support/clients/applications.ts'
import { uploadAt } from '../support/clients/uploads.ts'
import { eventually } from '../support/eventually.ts'
import { testLong } from '../support/long-tests.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { makeTenant } from '../support/tenants.ts'

const mebibyte = 1024 ** 2
const gibibyte = 1024 ** 3
const mostBytes = 2 * gibibyte

let folder: string
let archive: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'large-'))
  archive = join(folder, 'large.tgz')
})
afterAll(() => rm(folder, { recursive: true }))

/** Writes a .tgz of almost the size that an archive may have. Returns the digest of the file in it. */
async function makeArchive(): Promise<string> {
  const tar = pack()
  const written = pipeline(tar, createGzip({ level: 0 }), createWriteStream(archive))
  // Gzip without compression needs 5 bytes for each block of at most 64 KiB, here at least of 16 KiB.
  const size = mostBytes - mebibyte
  const entry = tar.entry({ name: 'data', size })
  const digest = createHash('sha256')
  const noise = createCipheriv('aes-128-ctr', Buffer.alloc(16, 1), Buffer.alloc(16))
  const zeros = Buffer.alloc(mebibyte)
  for (let at = 0; at < size; at += mebibyte) {
    const part = noise.update(zeros.subarray(0, Math.min(mebibyte, size - at)))
    digest.update(part)
    if (!entry.write(part)) await once(entry, 'drain')
  }
  entry.end(undefined)
  tar.finalize()
  await written
  return digest.digest('hex')
}

/** Sends the archive from this offset on; the connection breaks after so many bytes. */
async function send(url: string, offset: number, breakAfter = Infinity): Promise<number | undefined> {
  const headers = { 'upload-offset': offset, 'content-type': 'application/offset+octet-stream' }
  const sent = request(url, { method: 'PATCH', agent: false, headers })
  const answered = once(sent, 'response') as Promise<[{ statusCode?: number; resume(): void }]>
  answered.catch(() => {})
  let count = 0
  for await (const chunk of createReadStream(archive, { start: offset, highWaterMark: mebibyte })) {
    if (!sent.write(chunk)) await once(sent, 'drain')
    count += (chunk as Buffer).length
    if (count < breakAfter) continue
    sent.on('error', () => {})
    sent.destroy()
    return undefined
  }
  sent.end()
  const [answer] = await answered
  answer.resume()
  return answer.statusCode
}

testLong('an archive of 2 GiB is sent, goes on after an interruption, and is unpacked', async () => {
  const tenant = await makeTenant()
  const server = await tenant.owner.deployServers.make({ worker_disk_gib: 8 })
  const apps = applicationsOf(tenant.owner, server.id)
  const digest = await makeArchive()
  // Zeros after an archive are nothing of it.
  await truncate(archive, mostBytes)
  const size_bytes = (await stat(archive)).size
  expect(size_bytes).toBe(mostBytes)
  const path = `/api/v1/deploy-servers/${server.id}/artifacts`
  const { id, body, operation } = await tenant.owner.begin('POST', path, {
    name: 'large',
    upload: { size_bytes },
  })
  const url = String(body['upload_url'])
  await send(url, 0, gibibyte)
  // What was on its way arrives until the worker hears that there is no more.
  let before = -1
  const offset = await eventually(async () => {
    const now = (await uploadAt(url).head()).offset
    const rests = now > 0 && now === before
    before = now
    return rests && now
  })
  expect(offset).toBeLessThan(size_bytes)
  expect(await send(url, offset)).toBe(204)
  await operation.end(600_000)
  expect(await apps.artifact(id)).toMatchObject({ status: 'ready', files: 1, size_bytes })
  const onWorker = (command: string) =>
    runOnMachine(tenant.owner, server.workers[0]?.machine_id ?? '', command)
  expect(await onWorker('sha256sum </opt/apps/large/data')).toContain(digest)
  expect(await onWorker('ls /opt/apps/.uploads')).toBe('')
})
