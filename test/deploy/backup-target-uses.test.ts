import { beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { ArchiveSegment } from '../../models/deploy/archive-segments.ts'
import { Archive } from '../../models/deploy/archives.ts'
import { BackupExecution } from '../../models/deploy/backup-executions.ts'
import { deleteTarget } from '../../models/deploy/backup-target-deletion.ts'
import { BackupTarget, type BackupTargetDocument } from '../../models/deploy/backup-targets.ts'
import { Database } from '../../models/deploy/databases.ts'
import { Operation } from '../../models/operations.ts'
import { databaseRecordsOf } from '../support/database-records.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Which restores keep a backup target whose backups are to be forgotten, on records: its bucket is nowhere.

let tenant: TestTenant
let records: ReturnType<typeof databaseRecordsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  records = databaseRecordsOf(tenant.id)
})

async function makeTarget(): Promise<BackupTargetDocument> {
  const place = { endpoint: 'https://s3.example', region: 'r', bucket: newId(), path_style: true }
  const keys = { access_key_id: 'a', secret_sealed: '-', checked_at: new Date() }
  return (
    await new BackupTarget({ tenant_id: tenant.id, name: newId(), ...place, ...keys }).save()
  ).toObject()
}

async function makeFormerArchive(target_id: string): Promise<string> {
  const _id = newId()
  const its = { tenant_id: tenant.id, deploy_server_id: newId(), database_id: newId(), target_id }
  await new Archive({ ...its, _id, key_sealed: '-', is_current: false, told_at: new Date() }).save()
  const segment = { name: '000000010000000000000001', blob: newId(), bytes: 0 }
  await new ArchiveSegment({ tenant_id: tenant.id, archive_id: _id, ...segment }).save()
  return _id
}

const copy = { parts: 0, stored_bytes: 0, dump_bytes: 0, counts: [], base: null }
const forget = (target: BackupTargetDocument) => deleteTarget(target, { forgets: true })
const inUse = {
  status: 409,
  code: 'backup_target_in_use',
  extensions: { uses: { restores: 1 } },
}

/** A restore that was accepted. */
async function restoreFrom(execution_id: string) {
  const its = { tenant_id: tenant.id, resource_kind: 'database', resource_id: newId(), resource_name: 'x' }
  const restore = { verb: 'restore', input: { execution_id }, state: 'running', open: true }
  return new Operation({ ...its, ...restore, workflow_id: newId() }).save()
}

test('a target keeps its backups while a database is to begin with one of them', async () => {
  const { _id: target_id, ...target } = await makeTarget()
  const database = await records.database()
  const executions = [
    await records.execution(database, { target_id, copy }),
    await records.execution(database, { target_id, copy }),
  ]
  const begins_with = { execution_id: executions[1]?._id ?? '' }
  const beginning = await records.database({ status: 'error', begins_with })
  await expect(forget({ _id: target_id, ...target })).rejects.toMatchObject(inUse)
  const its = { target_id, tenant_id: tenant.id }
  expect(await BackupExecution.countDocuments(its)).toBe(2)

  await Database.deleteOne({ _id: beginning._id, tenant_id: tenant.id })
  await forget({ _id: target_id, ...target })
  expect(await BackupExecution.countDocuments(its)).toBe(0)
})

test('a target keeps a log while a database is recovered by it from a base that is elsewhere', async () => {
  const { _id: target_id, ...target } = await makeTarget()
  const archive_id = await makeFormerArchive(target_id)
  const base = await records.execution(await records.database(), { archive_id, copy })
  const operation = await restoreFrom(base._id)
  await expect(forget({ _id: target_id, ...target })).rejects.toMatchObject(inUse)
  expect(await ArchiveSegment.countDocuments({ archive_id, tenant_id: tenant.id })).toBe(1)

  await Operation.deleteOne({ _id: operation._id, tenant_id: tenant.id })
  await forget({ _id: target_id, ...target })
  expect(await ArchiveSegment.countDocuments({ archive_id, tenant_id: tenant.id })).toBe(0)
})
