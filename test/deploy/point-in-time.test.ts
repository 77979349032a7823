import { beforeAll, expect, test } from '@jest/globals'
import { ArchiveSegment } from '../../models/deploy/archive-segments.ts'
import { BackupExecution } from '../../models/deploy/backup-executions.ts'
import { EventDelivery } from '../../models/deploy/events.ts'
import { spoil, storedBytes } from '../support/blobs.ts'
import type { DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { eventsOf } from '../support/clients/events.ts'
import { insideOf, rows } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { testDrawn } from '../support/drawn.ts'
import { atEndOfFile } from '../support/end-of-file.ts'
import { eventually } from '../support/eventually.ts'
import { momentsOf } from '../support/moments.ts'
import { sharedServer } from '../support/shared-server.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Recovery of PostgreSQL to any moment, by a copy of its files and the segments of its log.

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>
let moments: ReturnType<typeof momentsOf>

beforeAll(async () => {
  ;({ tenant, server } = await sharedServer())
  if (hasEngines) await makeDatabaseImages('postgresql')
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
  moments = momentsOf(tenant, databases, inside)
  const events = eventsOf(tenant.owner, server.id)
  const { id } = await events.make({ url: 'https://events.example' })
  atEndOfFile(() => events.delete(id))
})

const digest = (id: string) => inside.digest(id, 'postgresql')
const remove = async (id: string) => (await databases.delete(id)).operation.success()

async function told(kind: string, id: string, text: string): Promise<void> {
  const { name } = await databases.get(id)
  await eventually(async () =>
    (await EventDelivery.find({ tenant_id: tenant.id }).lean()).some(
      (one) => one.kind === kind && one.message.includes(`of ${name} is`) && one.message.includes(text),
    ),
  )
}

const segmentsOf = async (id: string) => {
  const archives = (await moments.archives(id)).map(({ _id }) => _id)
  return ArchiveSegment.find({ archive_id: { $in: archives }, tenant_id: tenant.id })
    .sort({ name: 1 })
    .lean()
}

describeEngines('a database', () => {
  test('is recovered to a moment as a new one and in its place, and from then on again', async () => {
    const id = await moments.make()
    const { connection_string } = await databases.get(id)
    await inside.write(id, 'postgresql')
    const [first, written] = [await moments.now(id), await digest(id)]
    await moments.writeMore(id)
    const [second, more] = [await moments.now(id), await digest(id)]
    expect(more).not.toBe(written)
    await inside.clear(id, 'postgresql')
    await moments.reaches(id, await moments.now(id))

    const copy = await databases.make({ type: 'postgresql', memory_mib: 96, database_id: id, at: first })
    expect(copy).toMatchObject({ type: 'postgresql', point_in_time: { enabled: false, status: 'off' } })
    expect(await inside.count(copy.id, 'postgresql')).toBe(rows)
    expect(await digest(copy.id)).toBe(written)
    await moments.writeMore(copy.id) // it takes writes
    await remove(copy.id)

    await (await databases.recover(id, second)).operation.success()
    expect(await digest(id)).toBe(more)
    const recovered = await databases.get(id)
    expect(recovered).toMatchObject({ status: 'running', connection_string })
    expect(recovered.former_volumes).toHaveLength(1)
    for (const one of [id, copy.id]) expect(await inside.scratches(one)).toEqual([])

    // A new archive begins, and the former one leads to its moments as before, also while the new one has no base.
    await inside.clear(id, 'postgresql')
    await (await databases.recover(id, first)).operation.success()
    expect(await digest(id)).toBe(written)
    const { earliest, ranges } = await moments.archiving(id)
    expect(ranges.length).toBeGreaterThanOrEqual(2)
    expect(earliest && earliest > second).toBe(true)
    await inside.clear(id, 'postgresql')
    await (await databases.recover(id, second)).operation.success()
    expect(await digest(id)).toBe(more)
    await remove(id)
    expect(await inside.volumes(id)).toEqual([])
  })

  testDrawn('goes back to its former volume, and is recovered from then on and before', async () => {
    const id = await moments.make()
    await inside.write(id, 'postgresql')
    const [first, written] = [await moments.now(id), await digest(id)]
    await moments.writeMore(id)
    const more = await digest(id)
    await moments.reaches(id, await moments.now(id))
    await (await databases.recover(id, first)).operation.success()
    expect(await digest(id)).toBe(written)
    const [former] = (await databases.get(id)).former_volumes
    await (await databases.goBack(id, former?.id ?? '')).operation.success()
    expect(await digest(id)).toBe(more)
    await moments.archiving(id)
    const second = await moments.now(id)
    await inside.clear(id, 'postgresql')
    await moments.reaches(id, await moments.now(id))
    await (await databases.recover(id, second)).operation.success()
    expect(await digest(id)).toBe(more)
    await (await databases.recover(id, first)).operation.success()
    expect(await digest(id)).toBe(written)
    await remove(id)
  })

  testDrawn(
    'is recovered to the last moment although nothing was written for a while, and after it is deleted',
    async () => {
      const id = await moments.make()
      await inside.write(id, 'postgresql')
      const written = await digest(id)
      await moments.reaches(id, await moments.now(id))
      const stored = (await segmentsOf(id)).length
      const last = await moments.now(id)
      await moments.reaches(id, last)
      // To be idle costs nothing but what the engine itself writes now and then.
      expect((await segmentsOf(id)).length - stored).toBeLessThanOrEqual(2)
      await remove(id)
      const copy = await databases.make({ type: 'postgresql', memory_mib: 96, database_id: id, at: last })
      expect(await digest(copy.id)).toBe(written)
      await remove(copy.id)
    },
  )

  test('is not recovered to a moment that is not there', async () => {
    const id = await moments.make()
    const { earliest } = await moments.archiving(id)
    for (const at of ['2020-01-01T00:00:00Z', new Date(Date.now() + 3_600_000).toISOString()])
      expect(await databases.askRecovery(id, at)).toMatchObject({
        status: 422,
        body: { errors: [{ pointer: '/at', message: expect.stringContaining(`within ${earliest}`) }] },
      })
    expect(await databases.ask({ name: 'no-at', database_id: id })).toMatchObject({ status: 422 })
    const other = await makeTenant()
    expect(
      await databasesOf(other.owner, (await other.owner.deployServers.make()).id).ask({
        name: 'stolen',
        database_id: id,
        at: earliest,
      }),
    ).toMatchObject({ status: 422, body: { errors: [{ message: 'there is no moment yet' }] } })
    const redis = { name: 'no-log', type: 'redis', memory_mib: 32, point_in_time: { enabled: true } }
    expect(await databases.ask(redis)).toMatchObject({ status: 422 })
    await remove(id)
  })
})

describeEngines('a base', () => {
  testDrawn('is compared while clients write, whatever the tables are called and hold', async () => {
    const id = await moments.make()
    await inside.runIn(
      id,
      `psql -q -h /tmp -U "$POSTGRES_USER" -d "$POSTGRES_DB" <<'END'
CREATE TABLE "two  spaces" AS SELECT generate_series(1, 7) AS id;
CREATE UNLOGGED TABLE unlogged AS SELECT generate_series(1, 9) AS id;
CREATE TABLE written (id int);
END`,
    )
    const writing = inside.runIn(
      id,
      `until [ -e /tmp/stop ]; do psql -q -h /tmp -U "$POSTGRES_USER" -d "$POSTGRES_DB" -c 'INSERT INTO written VALUES (1)'; done`,
    )
    const { id: execution, operation } = await databases.backUp(id)
    await operation.success()
    await inside.runIn(id, 'touch /tmp/stop')
    await writing
    const { method, verified } = await databases.execution(execution)
    expect([method, verified?.by, verified && verified.rows >= 7]).toEqual(['base', 'restore', true])
    const copy = await databases.make({ type: 'postgresql', memory_mib: 96, execution_id: execution })
    expect(Number(await moments.sql(copy.id, 'SELECT count(*) FROM unlogged'))).toBe(0)
    await remove(copy.id)
    await remove(id)
  })
})

describeEngines('the archive of a database', () => {
  testDrawn('is stored sealed, begins and ends without a restart, and goes with the last base', async () => {
    const { id } = await databases.make({ type: 'postgresql', memory_mib: 96 })
    const started = () => moments.sql(id, 'SELECT pg_postmaster_start_time()')
    const since = await started()
    await databases.change(id, { point_in_time: { enabled: true } })
    await moments.archiving(id)
    await moments.sql(id, `CREATE TABLE words AS SELECT repeat('needle', 100) AS word`)
    await moments.reaches(id, await moments.now(id))
    const segments = await segmentsOf(id)
    expect(segments.length).toBeGreaterThan(0)
    for (const { blob } of segments) expect((await storedBytes(blob)).includes('needle')).toBe(false)

    await databases.change(id, { point_in_time: { enabled: false } })
    expect((await databases.get(id)).point_in_time).toMatchObject({ enabled: false, status: 'off' })
    await eventually(
      async () => (await inside.runIn(id, 'ls $PGDATA | grep -c keelson || true')).trim() === '0',
    )
    expect(await started()).toBe(since)
    const [base, ...others] = await databases.executions(`&database_id=${id}`)
    expect([base, others]).toMatchObject([
      { status: 'succeeded', method: 'base', verified: { by: 'restore' } },
      [],
    ])
    await (await databases.deleteExecution(base?.id ?? '')).operation.success()
    await eventually(async () => (await moments.archives(id)).length === 0)
    await remove(id)
  })

  testDrawn(
    'that is damaged in storage is found by the next look and told; it leads to the moments before the damage and after a new base',
    async () => {
      const id = await moments.make()
      const { earliest } = await moments.archiving(id)
      await inside.write(id, 'postgresql')
      const [before, written] = [await moments.now(id), await digest(id)]
      await moments.reaches(id, before)
      await moments.writeMore(id)
      await moments.reaches(id, await moments.now(id))
      const [base] = await BackupExecution.find({ database_id: id, tenant_id: tenant.id }).lean()
      const damaged = (await segmentsOf(id)).at(-1)
      if (damaged) await spoil(damaged.blob)
      await (await databases.verify(base?._id ?? '')).operation.success()
      await told('archive.damaged', id, 'is damaged')
      const now = await eventually(async () => {
        const { point_in_time } = await databases.get(id)
        return point_in_time?.status === 'archiving' && point_in_time.earliest !== earliest && point_in_time
      })
      const [former, present, ...others] = now.ranges
      expect([former?.earliest, present?.earliest, others]).toEqual([earliest, now.earliest, []])
      expect(before <= String(former?.latest) && String(former?.latest) < String(now.earliest)).toBe(true)
      const between = new Date(Date.parse(String(former?.latest)) + 1).toISOString()
      expect(await databases.askRecovery(id, between)).toMatchObject({ status: 422 })
      await (await databases.recover(id, before)).operation.success()
      expect(await digest(id)).toBe(written)
      await remove(id)
    },
  )

  testDrawn('that lost a segment is told, and begins again with a new base', async () => {
    const id = await moments.make()
    const [former] = await moments.archives(id)
    await inside.runIn(id, 'echo 000000010000000000000001 >$PGDATA/pgsql_tmp_keelson/gap')
    await told('archive.paused', id, 'was dropped')
    await eventually(async () =>
      (await moments.archives(id)).some(({ _id, is_current }) => is_current && _id !== former?._id),
    )
    await moments.archiving(id)
    await remove(id)
  })
})
