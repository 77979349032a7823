import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import type { BlobName } from '../../models/blobs.ts'
import { RagDocument } from '../../models/retrieval/documents.ts'
import { partAtLeast, partBytes } from '../../models/retrieval/uploads.ts'
import { asRoot } from '../support/as-root.ts'
import { announced, collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { uploadAt } from '../support/clients/uploads.ts'
import { pdfOf } from '../support/documents/pdf.ts'
import { eventually } from '../support/eventually.ts'
import { plantAll } from '../support/planted.ts'
import { sectioned } from '../support/rag/texts.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Documents whose content is sent in parts.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant({ max_rag_gib: 0.1 })
  const { id } = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  await (await ragStoreOf(tenant.owner).enable(id)).operation.success()
  await (await collectionsOf(tenant.owner).create({ name: 'large' })).operation.success()
})
afterAll(removeTenants)

const documents = () => documentsOf(tenant.owner, 'large')

async function announce(name: string, content: Buffer, over = {}) {
  const begun = await documents().announce(name, content, over)
  plantAll([new URL(begun.url).searchParams.get('token') ?? ''])
  return begun
}

/** As large as this: a word, and blanks, which make no chunk. */
const padded = (word: string, bytes: number): Buffer =>
  Buffer.concat([Buffer.from(`The word is ${word}.\n`), Buffer.alloc(bytes, '\n')])

const recordOf = (id: string) => RagDocument.findOne({ _id: id, tenant_id: tenant.id }).lean()
const mine = (): { tenant_id: string } => ({ tenant_id: tenant.id })

/** How many of these blobs are stored. */
const stored = (blobs: BlobName[]): Promise<number> =>
  mongoose.connection
    .collection('blobs.files')
    .countDocuments({ _id: { $in: blobs.map(({ key }) => key) } } as object)

asRoot('a document that is sent in parts', () => {
  test('is found once all of it has come, also after a connection that broke', async () => {
    const content = padded('sesquipedalian', 2 * partBytes + 10)
    const { id, operation, sent, body } = await announce('long.txt', content)
    expect(body).toMatchObject({ stage: 'uploading', status: 'creating', version: 0, size_bytes: 0 })
    expect(await documents().get(id)).toMatchObject({
      upload: { url: null, size_bytes: content.length, received_bytes: 0 },
    })
    await expect(sent.add(0, content, { breakAfter: partBytes + partAtLeast * 2 })).rejects.toThrow()
    await eventually(async () => ((await documents().get(id)).upload?.received_bytes ?? 0) > partBytes)
    await sent.all(content)
    await operation.success()
    expect(await documents().get(id)).toMatchObject({
      status: 'ready',
      stage: 'ready',
      version: 1,
      indexed_version: 1,
      size_bytes: content.length,
      content_hash: announced(content).sha256,
      upload: null,
    })
    expect((await recordOf(id))?.content.length).toBeGreaterThan(2)
    expect((await documents().search('sesquipedalian', { mode: 'text' }))[0]?.document.id).toBe(id)
    // A client that has not heard the last answer asks again.
    expect(await sent.head()).toMatchObject({ status: 200, offset: content.length })
  })

  test('is a PDF, too', async () => {
    const content = pdfOf([[{ text: 'Flywheels store energy.', x: 72, y: 700 }]])
    const { id, operation, sent } = await announce('wheels.pdf', content)
    await sent.all(content)
    await operation.success()
    expect((await documents().search('flywheels', { mode: 'text' }))[0]?.document.id).toBe(id)
  })

  test('changes nothing if the document has it already, and replaces it otherwise', async () => {
    const content = Buffer.from(sectioned(3))
    const { id } = await documents().make('again.md', content)
    const same = await documents().ask({ name: 'again.md', upload: announced(content) })
    expect(same).toMatchObject({ status: 200, body: { id, version: 1, upload: null } })

    const next = Buffer.from(sectioned(4))
    const { operation, sent } = await announce('again.md', next)
    expect(await documents().get(id)).toMatchObject({ stage: 'uploading', version: 1, indexed_version: 1 })
    expect(await documents().ask({ name: 'again.md', upload: announced(next) })).toMatchObject({
      status: 409,
      body: { code: 'operation_in_progress' },
    })
    const former = (await recordOf(id))?.content ?? []
    await sent.all(next)
    await operation.success()
    expect(await documents().get(id)).toMatchObject({ version: 2, indexed_version: 2, chunks: 4 })
    await eventually(async () => (await stored(former)) === 0)
  })

  test('that is not what was announced leaves the document as it was', async () => {
    const content = Buffer.from(sectioned(3))
    const { id } = await documents().make('damaged.md', content)
    const before = await recordOf(id)
    const next = Buffer.from(sectioned(5))
    const { operation, sent } = await announce('damaged.md', next)
    await sent.all(Buffer.from(next.toString().toUpperCase()))
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'content_damaged' } })
    expect(await documents().get(id)).toMatchObject({
      status: 'ready',
      stage: 'ready',
      failed_stage: null,
      version: 1,
      status_reason: expect.stringContaining('SHA-256'),
    })
    expect(await recordOf(id)).toMatchObject({ content: before?.content, content_hash: before?.content_hash })
    expect(await sent.head()).toMatchObject({ status: 410 })
  })

  test('leaves nothing when it is cancelled, or not sent in time', async () => {
    const content = padded('never', partBytes * 2)
    const cancelled = await announce('cancelled.txt', content)
    const late = await announce('late.txt', content)
    for (const { sent } of [cancelled, late]) await sent.add(0, content.subarray(0, partBytes))
    const parts = [...((await recordOf(cancelled.id))?.upload?.parts ?? [])]
    parts.push(...((await recordOf(late.id))?.upload?.parts ?? []))
    expect(await stored(parts)).toBe(2)
    await cancelled.operation.cancel()
    expect((await cancelled.operation.end()).state).toBe('cancelled')
    await RagDocument.updateOne({ _id: late.id, ...mine() }, { $set: { 'upload.expires_at': new Date(0) } })
    expect(await late.sent.head()).toMatchObject({ status: 410 }) // and tells the workflow
    expect(await late.operation.end()).toMatchObject({ state: 'failed', error: { code: 'upload_expired' } })
    for (const { id, sent } of [cancelled, late]) {
      expect(await sent.add(partBytes, content.subarray(partBytes))).toMatchObject({ status: 410 })
      expect(await documents().get(id)).toMatchObject({
        status: 'error',
        stage: 'failed',
        failed_stage: 'uploading',
        version: 0,
        upload: null,
      })
      const retry = await tenant.owner.ask('POST', `/api/v1/rag/collections/large/documents/${id}/retry`)
      expect(retry).toMatchObject({ status: 409, body: { code: 'content_missing' } })
    }
    await eventually(async () => (await stored(parts)) === 0)
    // It may come by one request instead.
    expect(await documents().make('late.txt', 'It has come.')).toMatchObject({ id: late.id, version: 1 })
    await (await documents().delete(cancelled.id)).operation.success()
  })

  test('ends with the deletion of its document', async () => {
    const content = padded('short', partBytes)
    const { id, operation, sent } = await announce('leaves.txt', content)
    await sent.add(0, content.subarray(0, partAtLeast))
    const parts = (await recordOf(id))?.upload?.parts ?? []
    await (await documents().delete(id)).operation.success()
    expect((await operation.end()).state).toBe('cancelled')
    expect(await sent.head()).toMatchObject({ status: 404 })
    await eventually(async () => (await stored(parts)) === 0)
  })

  test('counts against the tenant’s limit by what was announced, and is no longer', async () => {
    const upload = { size_bytes: 60 * 1024 ** 2, sha256: announced(randomBytes(8)).sha256 }
    const { operation } = await tenant.owner.begin('POST', '/api/v1/rag/collections/large/documents', {
      name: 'first.txt',
      upload,
    })
    expect(await documents().ask({ name: 'second.txt', upload })).toMatchObject({
      status: 409,
      body: { code: 'quota_exceeded' },
    })
    await operation.cancel()
    await operation.end()
    const content = padded('fits', 10)
    const { sent, operation: other } = await announce('second.txt', content)
    expect(await sent.add(0, Buffer.concat([content, content]))).toMatchObject({ status: 413 })
    await sent.all(content)
    await other.success()
  })

  test.each([
    ['more than 256 MiB', { size_bytes: 256 * 1024 ** 2 + 1, sha256: '0'.repeat(64) }, '/upload/size_bytes'],
    ['nothing', { size_bytes: 0, sha256: '0'.repeat(64) }, '/upload/size_bytes'],
    ['no hash', { size_bytes: 1 }, '/upload/sha256'],
  ])('is refused if it has %s', async (_, upload, pointer) => {
    expect(await documents().ask({ name: 'a.txt', upload })).toMatchObject({
      status: 422,
      body: { errors: [{ pointer }] },
    })
  })

  test('is sent by the token of its document alone', async () => {
    const content = padded('mine', 10)
    const { id, url, operation } = await announce('own.txt', content)
    const other = await announce('other.txt', content)
    for (const wrong of [
      url.replace(/token=.*/, `token=kup_${'x'.repeat(43)}`),
      url.replace(/token=.*/, other.url.slice(other.url.indexOf('token='))),
    ])
      expect((await uploadAt(wrong).add(0, content)).status).toBe(404)
    await operation.cancel()
    await other.operation.cancel()
    await operation.end()
    await (await documents().delete(id)).operation.success()
  })
})
