import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import S3rver from 's3rver'
import { type BlobStore, BlobMissing, makeS3Store } from '../../lib/blob-store.ts'
import { newId } from '../../lib/ids.ts'
import { removeUnwantedBlobs, storeBlob, UnwantedBlob, useBlobStores } from '../../models/blobs.ts'
import { keepPiece, LogArchive, readPiece, removeArchive } from '../../models/compute/log-archive.ts'
import { eventually } from '../support/eventually.ts'
import { piecesOf } from '../support/log-archive.ts'
import { platformS3 } from '../support/stack.ts'

// The archive in GridFS, and in a bucket of a server that speaks S3.

const settings = {
  KEELSON_S3_ENDPOINT: `http://127.0.0.1:${platformS3.port}`,
  KEELSON_S3_REGION: 'us-east-1',
  KEELSON_S3_BUCKET: 'archive',
  KEELSON_S3_ACCESS_KEY: 'S3RVER',
  KEELSON_S3_SECRET_KEY: 'S3RVER',
}

let folder: string
let server: S3rver
let bucket: BlobStore
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-s3-'))
  server = new S3rver({
    port: platformS3.port,
    address: '127.0.0.1',
    silent: true,
    directory: folder,
    configureBuckets: [{ name: settings.KEELSON_S3_BUCKET, configs: [] }],
  })
  await server.run()
  bucket = await makeS3Store(settings)
})
afterAll(async () => {
  await useBlobStores({ ...settings, KEELSON_S3_BUCKET: undefined })
  await server.close()
  await rm(folder, { recursive: true })
})

const hash = (): string => randomBytes(32).toString('hex')
const written = () => ({ tenant_id: newId(), instance_id: newId(), host_id: newId() })
const piece = (over: object = {}) => ({
  engine_id: hash(),
  engine_created_at: '2026-01-01T00:00:00.123456789Z',
  file: hash(),
  from: 0,
  bytes: 100,
  after_gap: 'false' as const,
  ...over,
})

describe.each(['gridfs', 's3'] as const)('in %s, the archive', (store) => {
  beforeAll(() =>
    useBlobStores({
      ...settings,
      KEELSON_S3_BUCKET: store === 's3' ? settings.KEELSON_S3_BUCKET : undefined,
    }),
  )

  test('returns a piece as it was sent, and stores it encrypted', async () => {
    const of = written()
    const bytes = randomBytes(5_000_000)
    expect(await keepPiece(of, piece(), bytes)).toBe(100)
    const [kept] = await piecesOf(of.instance_id)
    const archive = await LogArchive.findOne({ _id: of.instance_id, tenant_id: of.tenant_id }).lean()
    if (!kept || !archive) throw new Error('nothing was kept')
    expect(kept.blob.store).toBe(store)
    expect((await readPiece(kept, archive)).equals(bytes)).toBe(true)
    if (store === 's3') expect((await bucket.get(kept.blob.key)).includes(bytes.subarray(0, 64))).toBe(false)
    await removeArchive(of.instance_id)
  })

  test('stores a piece once however often it is sent, and refuses one that is ahead of its file', async () => {
    const of = written()
    const first = piece()
    const sent = Array.from({ length: 8 }, () => keepPiece(of, first, Buffer.from('the same')))
    expect(new Set(await Promise.all(sent))).toEqual(new Set([100]))
    expect(await keepPiece(of, { ...first, from: 200 }, Buffer.from('early'))).toBe(100)
    expect(await keepPiece(of, { ...first, from: 100, bytes: 50 }, Buffer.from('next'))).toBe(150)
    expect((await piecesOf(of.instance_id)).map(({ seq, from, to }) => [seq, from, to])).toEqual([
      [1, 0, 100],
      [2, 100, 150],
    ])
    await removeArchive(of.instance_id)
  })

  test('deletes removed pieces from the store, and uploads that were never referred to', async () => {
    const of = written()
    await keepPiece(of, piece(), Buffer.from('soon gone'))
    const [kept] = await piecesOf(of.instance_id)
    const begun = await storeBlob(Buffer.from('its process was killed'))
    await UnwantedBlob.updateOne({ _id: begun.key }, { $set: { remove_at: new Date() } })
    await removeArchive(of.instance_id)
    const keys = [begun.key, kept?.blob.key ?? '']
    if (store === 's3') {
      // The stack's worker has no bucket settings, and leaves the pieces there.
      await eventually(async () => (await removeUnwantedBlobs()) === 0)
      for (const key of keys) await expect(bucket.get(key)).rejects.toBeInstanceOf(BlobMissing)
    }
    await eventually(async () => (await UnwantedBlob.countDocuments({ _id: { $in: keys } })) === 0)
  })
})
