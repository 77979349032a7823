import { createHash, randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { Artifact } from '../../models/deploy/artifacts.ts'
import { archiveOf, tarOf } from '../support/archives.ts'
import type { DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { uploadAt } from '../support/clients/uploads.ts'
import { eventually } from '../support/eventually.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { plantAll } from '../support/planted.ts'
import { sharedServer } from '../support/shared-server.ts'
import type { TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
let server: DeployServerBody
let apps: ReturnType<typeof applicationsOf>

beforeAll(async () => {
  ;({ tenant, server } = await sharedServer())
  apps = applicationsOf(tenant.owner, server.id)
})

const onWorker = (command: string): Promise<string> =>
  runOnMachine(tenant.owner, server.workers[0]?.machine_id ?? '', command)

const push = (body: object) =>
  tenant.owner.ask('POST', `/api/v1/deploy-servers/${server.id}/artifacts`, { name: 'x', ...body })

describe('an artifact', () => {
  test('is unpacked on the worker, and replaces the former one whole', async () => {
    const archive = await archiveOf({ 'package.json': '{}', 'src/old.js': 'old' })
    const first = await apps.push('shop', archive)
    await first.operation.success()
    expect(await apps.artifact(first.id)).toMatchObject({
      name: 'shop',
      status: 'ready',
      path: '/opt/apps/shop',
      worker: 'w1',
      files: 2,
      size_bytes: archive.length,
      operation_id: null,
    })
    expect(await onWorker('cd /opt/apps/shop && find . -type f | sort')).toBe('./package.json\n./src/old.js')

    const next = await apps.push('shop', await archiveOf({ 'src/new.js': 'new' }))
    await next.operation.success()
    expect(await onWorker('cd /opt/apps/shop && find . -type f | sort')).toBe('./src/new.js')
  })

  test('keeps the last three versions, and no part of another', async () => {
    for (let version = 1; version <= 4; version++)
      await (await apps.push('kept', await archiveOf({ version: String(version) }))).operation.success()
    expect(await onWorker('cat /opt/apps/kept/version')).toBe('4')
    expect(await onWorker('cat /opt/apps/.versions/kept/*/version')).toBe('234')
    expect(await onWorker('ls -A /opt/apps | grep "^\\.kept" || echo none')).toBe('none')
  })

  test('that is refused says why, and leaves the former one', async () => {
    await (await apps.push('safe', await archiveOf({ file: 'safe' }))).operation.success()
    const link = gzipSync(
      await tarOf([
        { name: 'file', content: 'changed' },
        { name: 'out', type: 'symlink', linkname: '../../../../etc' },
      ]),
    )
    const { id, operation } = await apps.push('safe', link)
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'archive_refused' } })
    expect(await apps.artifact(id)).toMatchObject({
      status: 'failed',
      status_reason: 'The archive is refused: the link "out" leaves the folder',
      path: null,
    })
    expect(await onWorker('cat /opt/apps/safe/file')).toBe('safe')
    expect(await onWorker('ls /opt/apps/.versions/safe | wc -l')).toBe('1')
  })

  test('is refused unless it has one source, and that is a .tgz', async () => {
    const content_b64 = Buffer.from('hello').toString('base64')
    expect((await push({})).status).toBe(422)
    expect((await push({ content_b64, team_object: 'x' })).status).toBe(422)
    expect((await push({ content_b64 })).body['errors']).toEqual([
      { pointer: '/content_b64', message: 'must be a .tgz' },
    ])
    expect((await push({ team_object: 'x' })).body['code']).toBe('team_storage_unavailable')
    expect((await push({ content_b64: 'A'.repeat(24_000_000) })).status).toBe(413)
  })
})

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

/** Asks for an upload of an archive of this size. */
async function begin(name: string, upload: { size_bytes: number; sha256?: string }) {
  const { id, body, operation } = await tenant.owner.begin(
    'POST',
    `/api/v1/deploy-servers/${server.id}/artifacts`,
    { name, upload },
  )
  const url = String(body['upload_url'])
  plantAll([new URL(url).searchParams.get('token') ?? ''])
  return { id, body, operation, url, upload: uploadAt(url) }
}

/** The files of these uploads. */
const uploadsLeft = (...ids: string[]): Promise<string> =>
  onWorker(`ls /opt/apps/.uploads 2>/dev/null | grep -E '${ids.join('|')}' || true`)

describe('an archive that is sent in parts', () => {
  const mebibyte = 1024 ** 2

  test('goes on where it was interrupted, is unpacked when it is whole, and leaves nothing else', async () => {
    const content = randomBytes(64 * mebibyte)
    const archive = gzipSync(await tarOf([{ name: 'data', content }]), { level: 0 })
    const begun = await begin('big', { size_bytes: archive.length, sha256: sha256(archive) })
    expect(begun.body).toMatchObject({ status: 'staging', size_bytes: archive.length })
    expect(await apps.artifact(begun.id)).toMatchObject({ status: 'staging', upload_url: null })
    const { upload } = begun
    expect(await upload.head()).toMatchObject({ status: 200, offset: 0, length: archive.length })
    await expect(upload.add(0, archive, { breakAfter: 20 * mebibyte })).rejects.toThrow()
    const { offset } = await eventually(async () => {
      const found = await upload.head()
      return found.offset > 0 && found
    })
    expect(offset).toBeLessThan(archive.length)
    expect(await onWorker('ls /opt/apps/big 2>&1 || true')).toContain('No such file')
    await upload.all(archive, 24 * mebibyte)
    await begun.operation.success()
    expect(await apps.artifact(begun.id)).toMatchObject({ status: 'ready', path: '/opt/apps/big', files: 1 })
    expect(await onWorker('sha256sum </opt/apps/big/data')).toContain(sha256(content))
    expect(await uploadsLeft(begun.id)).toBe('')
    expect(await upload.head()).toMatchObject({ status: 200, offset: archive.length })
  })

  test('needs its token, its next offset and no more bytes than it has', async () => {
    const archive = await archiveOf({ file: 'small' })
    const { url, upload, operation } = await begin('strict', { size_bytes: archive.length })
    const other = await begin('other', { size_bytes: archive.length })
    for (const wrong of [
      url.replace(/token=.*/, ''),
      url.replace(/token=.*/, `token=kup_${'x'.repeat(43)}`),
      url.replace(/token=.*/, other.url.slice(other.url.indexOf('token='))),
      url.replace(/\/uploads\/[^?]*/, `/uploads/${other.id}`),
    ])
      expect((await uploadAt(wrong).add(0, archive)).status).toBe(404)
    expect(await upload.add(5, archive)).toMatchObject({ status: 409, offset: 0 })
    expect((await upload.add(0, Buffer.concat([archive, archive]))).status).toBe(413)
    expect((await upload.ask('PATCH', { 'upload-offset': 0 }, archive)).status).toBe(415)
    expect(
      (await upload.ask('PATCH', { 'content-type': 'application/offset+octet-stream' }, archive)).status,
    ).toBe(400)
    expect((await upload.ask('GET')).status).toBe(405)
    expect(await upload.add(0, archive.subarray(0, 10))).toMatchObject({ status: 204, offset: 10 })
    expect(await upload.add(0, archive)).toMatchObject({ status: 409, offset: 10 })
    expect(await upload.add(10, archive.subarray(10))).toMatchObject({ status: 204, offset: archive.length })
    await operation.success()
    await other.operation.cancel()
    expect((await other.operation.end()).state).toBe('cancelled')
  })

  test.each([
    ['another digest than announced', { digest: '0'.repeat(64) }],
    ['a link that leaves the folder', { linkname: '../../../../etc' }],
  ])(
    'is refused for %s, and leaves the former one',
    async (_, { digest, linkname }: { digest?: string; linkname?: string }) => {
      await (await apps.push('stays', await archiveOf({ file: 'former' }))).operation.success()
      const archive = gzipSync(
        await tarOf([
          { name: 'file', content: 'changed' },
          ...(linkname === undefined ? [] : [{ name: 'out', type: 'symlink' as const, linkname }]),
        ]),
      )
      const size_bytes = archive.length
      const { id, upload, operation } = await begin('stays', {
        size_bytes,
        ...(digest ? { sha256: digest } : {}),
      })
      await upload.all(archive)
      expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'archive_refused' } })
      expect(await onWorker('cat /opt/apps/stays/file')).toBe('former')
      expect(await uploadsLeft(id)).toBe('')
    },
  )

  test('leaves nothing when it is cancelled, or not sent in time', async () => {
    const archive = await archiveOf({ file: 'never' })
    const cancelled = await begin('never', { size_bytes: archive.length })
    const late = await begin('never', { size_bytes: archive.length })
    for (const { upload } of [cancelled, late]) await upload.add(0, archive.subarray(0, 10))
    const left = () => uploadsLeft(cancelled.id, late.id)
    expect((await left()).split('\n').filter((file) => !file.endsWith('.lock'))).toHaveLength(2)
    await cancelled.operation.cancel()
    expect((await cancelled.operation.end()).state).toBe('cancelled')
    await Artifact.updateOne(
      { _id: late.id, tenant_id: tenant.id },
      { $set: { 'upload.expires_at': new Date(0) } },
    )
    expect(await late.upload.head()).toMatchObject({ status: 410 })
    expect(await late.operation.end()).toMatchObject({ state: 'failed', error: { code: 'upload_expired' } })
    for (const { upload } of [cancelled, late])
      expect((await upload.add(10, archive.subarray(10))).status).toBe(410)
    expect(await left()).toBe('')
    expect(await onWorker('ls /opt/apps/never 2>&1 || true')).toContain('No such file')
  })

  test('says so when it was lost with its worker', async () => {
    const { id, upload, operation } = await begin('lost', { size_bytes: 100 })
    await Artifact.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { 'upload.whole': true } })
    await upload.head()
    expect(await operation.end()).toMatchObject({
      state: 'failed',
      error: { code: 'archive_refused', detail: expect.stringContaining('send it again') },
    })
  })

  test('has at most 2 GiB', async () => {
    expect(await push({ upload: { size_bytes: 2 * 1024 ** 3 + 1 } })).toMatchObject({ status: 422 })
    expect(await push({ upload: { size_bytes: 10, sha256: 'x' } })).toMatchObject({ status: 422 })
    expect(await push({ upload: { size_bytes: 10 }, team_object: 'x' })).toMatchObject({ status: 422 })
  })
})
