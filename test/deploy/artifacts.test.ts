import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { archiveOf, tarOf } from '../support/archives.ts'
import type { DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
let server: DeployServerBody
let apps: ReturnType<typeof applicationsOf>

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
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
