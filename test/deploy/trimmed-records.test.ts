import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { pino } from 'pino'
import { makeBuildActivities } from '../../activities/deploy/builds.ts'
import { newId } from '../../lib/ids.ts'
import {
  Artifact,
  type ArtifactDocument,
  artifactResource,
  untouched,
} from '../../models/deploy/artifacts.ts'
import { keepLogPart, logPartAfter } from '../../models/deploy/build-logs.ts'
import { Build, type BuildDocument } from '../../models/deploy/builds.ts'
import { trimBuilds } from '../../models/deploy/old-builds.ts'
import { TaskRun } from '../../models/deploy/task-runs.ts'
import { endOperation, Operation } from '../../models/operations.ts'
import { keepStoreRoom } from '../../models/store-room.ts'
import { applicationRecordsOf } from '../support/application-records.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// What tenants cannot delete, the platform removes. The deploy server is only a record.

const log = pino({ level: 'silent' })
const mebibyte = 1024 ** 2
let tenant: TestTenant
let records: Awaited<ReturnType<typeof applicationRecordsOf>>
const at = (path: string): string => `/api/v1/deploy-servers/${records.server._id}/${path}`

beforeEach(async () => {
  tenant = await makeTenant()
  records = await applicationRecordsOf(tenant.id)
})

const failed = { status: 'failed', image_state: 'leaving', digest: null } as const
const long = (daysAgo: number): Date => new Date(Date.now() - daysAgo * 86_400_000)

const write = (build: BuildDocument, line: string, part = 0): Promise<void> =>
  keepLogPart(build, {
    attempt: '0199a1c2-0000-7000-8000-000000000000',
    part,
    total: part + 1,
    lines: [{ time: new Date().toISOString(), line }],
  })
async function linesOf(build: BuildDocument): Promise<string[]> {
  const found: string[] = []
  for (let part = await logPartAfter(build, null); part; part = await logPartAfter(build, part))
    found.push(...part.lines.map(({ line }) => line))
  return found
}
const isThere = async ({ _id }: { _id: string }): Promise<boolean> =>
  (await Build.exists({ _id, tenant_id: tenant.id })) !== null

describe('the records of builds', () => {
  test('are the newest 200 without an image, with their logs, although no build succeeds', async () => {
    const oldest = await records.build({ ...failed, created_at: long(9) })
    await write(oldest, 'why it failed')
    const kept = await records.build({ image: 'kept', created_at: long(9) })
    const open = await records.build({ status: 'creating', operation_id: newId(), created_at: long(9) })
    for (let n = 0; n < 204; n++) await records.build({ ...failed, created_at: long(1) })
    const last = await records.build({ status: 'creating', operation_id: newId(), image_state: 'none' })
    await makeBuildActivities().endBuild(last._id, null)
    const its = { tenant_id: tenant.id, deploy_server_id: records.server._id }
    expect(await Build.countDocuments({ ...its, operation_id: null, image_state: { $ne: 'kept' } })).toBe(200)
    expect(await Promise.all([oldest, kept, open, last].map(isThere))).toEqual([false, true, true, true])
    expect(await linesOf(oldest)).toEqual([])
  })

  test('lose their oldest logs beyond 256 MiB, also if their images are kept', async () => {
    const [first, second, third] = [
      await records.build({ created_at: long(3), log_bytes: 100 * mebibyte }),
      await records.build({ ...failed, created_at: long(2), log_bytes: 100 * mebibyte }),
      await records.build({ ...failed, created_at: long(1), log_bytes: 100 * mebibyte }),
    ]
    const unmeasured = await records.build({ ...failed })
    for (const build of [first, second, third, unmeasured]) await write(build, 'a line')
    await trimBuilds(records.server)
    expect(await Promise.all([first, second, third, unmeasured].map(linesOf))).toEqual([
      [],
      ['a line'],
      ['a line'],
      ['a line'],
    ])
    expect(await isThere(first)).toBe(true)
    const { log_bytes = 0 } =
      (await Build.findOne({ _id: unmeasured._id, tenant_id: tenant.id }).lean()) ?? {}
    expect(log_bytes).toBeGreaterThan('a line'.length)
  })
})

describe('the log of a build', () => {
  afterEach(() => keepStoreRoom({ KEELSON_STORE_FREE_GIB: 0 }, log))

  test('has a note for what came while the store was full', async () => {
    const build = await records.build({ status: 'creating' })
    await write(build, 'before', 0)
    keepStoreRoom({ KEELSON_STORE_FREE_GIB: 1_000_000 }, log)
    for (const part of [1, 2, 3]) await write(build, 'too much', part)
    keepStoreRoom({ KEELSON_STORE_FREE_GIB: 0 }, log)
    await write(build, 'after', 4)
    expect(await linesOf(build)).toEqual([
      'before',
      'lines are missing here: the platform’s store is full',
      'after',
    ])
  })
})

const artifacts = (count: number, over: Partial<ArtifactDocument>) =>
  Artifact.insertMany(
    Array.from({ length: count }, () => {
      const its = { tenant_id: tenant.id, deploy_server_id: records.server._id, size_bytes: 1, blob: null }
      return { _id: newId(), name: newId(), folder: 'shop', sha256: null, ...its, ...untouched, ...over }
    }),
  )
describe('the records of artifacts', () => {
  const upload = { name: 'shop', upload: { size_bytes: 1 } }

  test('of one deploy server on their way are 50 at most', async () => {
    await artifacts(50, { status: 'creating', operation_id: newId() })
    for (const body of [upload, { name: 'shop', content_b64: 'H4sIAAAA' }])
      expect(await tenant.owner.ask('POST', at('artifacts'), body)).toMatchObject({
        status: 409,
        body: { code: 'too_many_uploads' },
      })
    const other = await applicationRecordsOf(tenant.id)
    const path = `/api/v1/deploy-servers/${other.server._id}/artifacts`
    expect(await tenant.owner.ask('POST', path, upload)).toMatchObject({ status: 202 })
  })

  test('are the newest 200 from which nothing can be built, and those whose files the worker has', async () => {
    const ready = await artifacts(5, { status: 'ready', created_at: long(9) })
    await artifacts(203, { status: 'failed', created_at: long(1) })
    const its = { _id: ready[4]?._id ?? '', tenant_id: tenant.id }
    await artifactResource.comesToRest?.({ ...its, ended: 'succeeded' })
    expect(await tenant.owner.ask('POST', at('artifacts'), upload)).toMatchObject({ status: 202 })
    const left = await Artifact.find({ tenant_id: tenant.id }).sort({ _id: 1 }).lean()
    expect(left.filter(({ status }) => status === 'ready').map(({ _id }) => _id)).toEqual(
      ready.slice(2).map(({ _id }) => _id),
    )
    expect(left).toHaveLength(3 + 200) // with the new one
  })
})

describe('the runs of a scheduled task', () => {
  test('are forgotten with it, and an open one when it ends', async () => {
    const application = await records.application()
    const [task, other] = [await records.task(application), await records.task(application)]
    await records.runs(task, 3)
    await records.runs(other, 1)
    const [run] = await TaskRun.find({ tenant_id: tenant.id, task_id: task._id }).lean()
    const open = {
      _id: newId(),
      tenant_id: tenant.id,
      resource_kind: 'task_run',
      resource_id: String(run?._id),
    }
    const work = { verb: 'create', state: 'running', open: true, workflow_id: newId() } as const
    await new Operation({ ...open, ...work, resource_name: 'run' }).save()
    const set = { operation_id: open._id, status: 'creating' as const }
    await TaskRun.updateOne({ _id: String(run?._id), tenant_id: tenant.id }, { $set: set })

    const path = at(`applications/${application._id}/scheduled-tasks/${task._id}`)
    expect(await tenant.owner.ask('DELETE', path)).toMatchObject({ status: 204 })
    const left = async () =>
      (await TaskRun.find({ tenant_id: tenant.id }).sort({ _id: 1 }).lean()).map(({ task_id }) => task_id)
    expect(await left()).toEqual([task._id, other._id])
    await endOperation(open._id, { state: 'succeeded', status: 'succeeded' })
    expect(await left()).toEqual([other._id])
  })
})
