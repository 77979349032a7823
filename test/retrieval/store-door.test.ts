import { randomBytes } from 'node:crypto'
import { beforeAll, expect, test } from '@jest/globals'
import type { Store } from '../../images/rag/store.ts'
import { newId } from '../../lib/ids.ts'
import { makeSelfSigned } from '../../lib/self-signed.ts'
import { storeAt } from '../../models/retrieval/store-door.ts'
import { docker, onEngine } from '../support/containers.ts'
import { eventually } from '../support/eventually.ts'
import { runInside } from '../support/inside.ts'
import { documentOf, embedder, spec } from '../support/rag/samples.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// The platform's way to a store that is only in its tenant's subnet, with its disk.

let tenant: TestTenant
let container: Member
let disk: string
let store: Store
beforeAll(async () => {
  tenant = await makeTenant()
  disk = (await tenant.disks.make()).id
  const { id: vpc } = await makeVpc(tenant)
  const { id: subnet } = await makeSubnet(tenant, vpc)
  const ip_address = '10.0.0.77'
  const { certificate, key } = await makeSelfSigned({ name: 'localhost', years: 1 })
  container = await makeMember(tenant, subnet, {
    image: 'keelson/rag:1',
    command: [],
    cpu_cores: 1,
    memory_mib: 512,
    nics: [{ subnet_id: subnet, ip_address }],
    disks: [{ disk_id: disk, mount_path: '/data' }],
    config_vars: {
      RAG_HOST: ip_address,
      RAG_TOKEN: randomBytes(24).toString('hex'),
      RAG_TLS_CERT: certificate,
      RAG_TLS_KEY: key,
    },
  })
  store = storeAt({ host_id: container.host_id ?? '', instance_id: container.id })
  await eventually(async () => (await store.health()).ready)
})

const search = (text: string) => store.search('c', { mode: 'text', k: 3, text })
const at = (host_id: string, instance_id: string) => storeAt({ host_id, instance_id }).stats('c')
const inside = async (script: string): Promise<string> =>
  runInside(docker, (await onEngine(container.id))[0]?.Id ?? '', script)

test('the platform creates a collection, puts a document, searches and deletes', async () => {
  await store.createCollection('c', spec)
  expect(
    await store.replaceDocument('c', embedder, documentOf('d', 1, ['a red fox', 'a hen'])),
  ).toMatchObject({
    outcome: 'replaced',
    chunks: 2,
  })
  expect(await search('fox')).toMatchObject({ hits: [{ document_id: 'd', text: 'a red fox' }] })
  expect(await store.snapshot('c')).toMatchObject({ bytes: expect.any(Number) })
  await store.deleteDocument('c', 'd', 1)
  expect(await search('fox')).toMatchObject({ hits: [] })
  await expect(store.stats('other')).rejects.toMatchObject({ code: 'collection_not_found' })
  await expect(store.createCollection('c', { ...spec, metadata_schema: {} })).rejects.toMatchObject({
    code: 'collection_exists',
  })
})

test('the store writes to its disk as a user that is not root', async () => {
  await store.createCollection('owned', spec)
  expect(
    await inside('grep " /data " /proc/mounts | cut -d " " -f 3; stat -c "%u %a" /data/collections/owned*'),
  ).toMatch(/^xfs\n1000 600/)
  expect(
    await inside('for p in /proc/[0-9]*; do grep -q main.ts $p/cmdline && grep CapEff $p/status; done'),
  ).toMatch(/CapEff:\s+0+$/m)
})

test('a document of 20 MB and a search go their ways at once', async () => {
  await store.createCollection('long', spec)
  const { chunks, ...document } = documentOf(
    'd',
    1,
    Array.from({ length: 10_000 }, (_, index) => `hen ${index}`),
  )
  const long = chunks.map((chunk) => ({ ...chunk, text: `${chunk.text} ${'goose '.repeat(350)}` }))
  const written = store.replaceDocument('long', embedder, { ...document, chunks: long })
  expect(await store.stats('c')).toMatchObject({ name: 'c' })
  expect(await written).toMatchObject({ outcome: 'replaced', chunks: 10_000 })
  expect(await store.stats('long')).toMatchObject({ documents: 1, chunks: 10_000 })
})

test('a store that was killed comes back, and the next call finds what it had', async () => {
  await store.replaceDocument('c', embedder, documentOf('kept', 1, ['a grey goose']))
  const { State } = await docker.getContainer((await onEngine(container.id))[0]?.Id ?? '').inspect()
  process.kill(State.Pid, 'SIGKILL')
  const answer = await eventually(() =>
    search('goose').catch((error: { code: string }) => {
      expect(error.code).toBe('unavailable')
      return null
    }),
  )
  expect(answer.hits).toMatchObject([{ document_id: 'kept' }])
})

test('what is no store is unavailable, in words', async () => {
  const host = container.host_id ?? ''
  await expect(at(host, newId())).rejects.toMatchObject({
    code: 'unavailable',
    message: 'The container of the store is not on its host',
  })
  const { id: other } = await tenant.containers.make()
  await expect(at(host, other)).rejects.toMatchObject({
    code: 'unavailable',
    message: 'The store in the container does not answer',
  })
  await (await tenant.containers.stop(other)).operation.success()
  await expect(at(host, other)).rejects.toMatchObject({
    code: 'unavailable',
    message: 'The container of the store is not running',
  })
  await expect(at(newId(), container.id)).rejects.toMatchObject({
    code: 'unavailable',
    message: 'The host of the store does not answer',
  })
})

test('a call that takes too long is unavailable', async () => {
  const impatient = storeAt({ host_id: container.host_id ?? '', instance_id: container.id }, { timeoutMs: 1 })
  await expect(impatient.stats('c')).rejects.toMatchObject({ code: 'unavailable' })
})
