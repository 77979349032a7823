import { randomBytes, randomInt } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { afterEach, beforeAll, beforeEach, expect } from '@jest/globals'
import { loadBaseImage } from '../support/app-images.ts'
import { archiveOf, tarOf } from '../support/archives.ts'
import type { DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { buildsOf } from '../support/clients/builds.ts'
import { registryOf } from '../support/clients/registries.ts'
import { uploadAt } from '../support/clients/uploads.ts'
import { testDrawn } from '../support/drawn.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// A worker whose disk is full says so, keeps nothing of what it could not take, and serves on.

const mebibyte = 1024 ** 2
/** What is left of the disk, and what is sent. */
const [freeMib, sentMib] = [24, 64]

let tenant: TestTenant
let server: DeployServerBody
let apps: ReturnType<typeof applicationsOf>
let builds: ReturnType<typeof buildsOf>
let url: string
beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  await loadBaseImage(tenant.owner, server)
  apps = applicationsOf(tenant.owner, server.id)
  builds = buildsOf(tenant.owner, server.id)
  await builds.make('web', {
    Dockerfile:
      'FROM busybox\nRUN mkdir /w && echo serves >/w/index.html\nCMD exec httpd -f -p "$PORT" -h /w',
  })
  url = (await apps.make({ image: 'web', tag: 'latest' })).url
})

type Run = (command: string) => Promise<string>
const onWorker: Run = (command) => runOnMachine(tenant.owner, server.workers[0]?.machine_id ?? '', command)
const onControlPlane: Run = (command) =>
  runOnMachine(tenant.owner, server.control_plane?.machine_id ?? '', command)

const disk = '/var/lib/machine'
const free = async (run: Run = onWorker): Promise<number> =>
  Number((await run(`df -BM --output=avail ${disk} | tail -n 1`)).replace(/\D/g, ''))

async function fill(run: Run): Promise<void> {
  await run(
    `fallocate -l $(($(df -BM --output=avail ${disk} | tail -n 1 | tr -dc 0-9) - ${freeMib}))M ${disk}/filler`,
  )
  expect(await free(run)).toBeLessThanOrEqual(freeMib + 1)
}

beforeEach(() => fill(onWorker))
afterEach(async () => {
  await onWorker(`rm -f ${disk}/filler`)
})

/** Bytes that pack well, but not so well that they are refused. */
function thin(size: number): Buffer {
  const bytes = Buffer.alloc(size)
  for (let at = 0; at < size; at += 64) bytes[at] = randomInt(256)
  return bytes
}

/** Nothing has taken the rest of the disk, and the worker serves. */
async function isAsBefore(): Promise<void> {
  expect(await free()).toBeGreaterThan(freeMib - 12)
  expect((await visit(url)).text).toBe('serves')
}

// First: what the others leave in the registry would be collected, and make room.
testDrawn(
  'a build whose image does not fit into the registry too fails with the reason, and leaves nothing',
  async () => {
    // The layer fits once. What is random does not shrink on its way.
    const Dockerfile = `FROM busybox\nRUN head -c ${(freeMib - 8) * mebibyte} /dev/urandom >/data`
    const artifact_id = await builds.push('twice', { Dockerfile })
    const { id, operation } = await builds.create({ artifact_id, image: 'twice' })
    expect(await operation.end()).toMatchObject({
      state: 'failed',
      error: { code: 'worker_disk_full' },
    })
    expect(await onWorker(`docker images -q '10.77.0.11:5000/*:${id}'`)).toBe('')
    expect((await visit(url)).text).toBe('serves')
  },
)

testDrawn('an upload is answered with 507, and goes on when there is room', async () => {
  const content = randomBytes(sentMib * mebibyte)
  const archive = gzipSync(await tarOf([{ name: 'data', content }]), { level: 0 })
  const path = `/api/v1/deploy-servers/${server.id}/artifacts`
  const { id, body, operation } = await tenant.owner.begin('POST', path, {
    name: 'big',
    upload: { size_bytes: archive.length },
  })
  const upload = uploadAt(String(body['upload_url']))
  const refused = await upload.add(0, archive)
  expect(refused.status).toBe(507)
  expect(JSON.parse(refused.body)).toMatchObject({ code: 'worker_disk_full' })
  expect((await upload.head()).offset).toBe(0)
  await isAsBefore()
  await onWorker(`rm ${disk}/filler`)
  await upload.all(archive)
  await operation.success()
  expect(await apps.artifact(id)).toMatchObject({ status: 'ready' })
  expect(await onWorker('ls /opt/apps/.uploads')).toBe('')
})

testDrawn('an archive that does not fit unpacked fails with the reason, and leaves nothing', async () => {
  const { id, operation } = await apps.push('wide', await archiveOf({ data: thin(sentMib * mebibyte) }))
  expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'worker_disk_full' } })
  expect(await apps.artifact(id)).toMatchObject({ status_reason: 'The disk of the worker is full' })
  expect(await onWorker('ls /opt/apps/.versions/wide 2>/dev/null | wc -l')).toBe('0')
  await isAsBefore()
})

testDrawn('a push is answered with 507, and leaves nothing of its layer', async () => {
  const credentials = await tenant.owner.deployServers.credentials(server.id)
  const registry = registryOf(() => credentials)
  const layer = randomBytes(sentMib * mebibyte)
  await expect(registry.upload('large', layer)).rejects.toThrow(/507.*worker_disk_full/)
  await isAsBefore()
  await onWorker(`rm ${disk}/filler`)
  expect(await registry.upload('large', layer)).toMatchObject({ size: layer.length })
})

testDrawn('a build fails with the reason, and leaves nothing', async () => {
  const Dockerfile = `FROM busybox\nRUN dd if=/dev/urandom of=/data bs=1M count=${sentMib}`
  const artifact_id = await builds.push('filling', { Dockerfile })
  const { id, operation } = await builds.create({ artifact_id, image: 'filling' })
  expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'worker_disk_full' } })
  expect(await builds.get(id)).toMatchObject({ status_reason: 'The disk of the worker is full' })
  expect(await onWorker(`ls /run/keelson-builds | grep -v '^lock$' || echo none`)).toBe('none')
  await isAsBefore()
  await onWorker(`rm ${disk}/filler`)
  expect(await builds.make('filling', { Dockerfile })).toMatchObject({ status: 'succeeded' })
})

testDrawn('a full control plane keeps nothing of an image, which its worker has', async () => {
  await onWorker(`rm ${disk}/filler`)
  await fill(onControlPlane)
  const Dockerfile = `FROM busybox\nRUN head -c ${sentMib * mebibyte} /dev/urandom >/data`
  const { id } = await builds.make('large-build', { Dockerfile })
  expect(await builds.get(id)).toMatchObject({ image_on: ['w1'] })
  expect(await free(onControlPlane)).toBeGreaterThan(freeMib - 12)
  await onControlPlane(`rm ${disk}/filler`)
})
