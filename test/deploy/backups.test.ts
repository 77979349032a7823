import { beforeAll, expect, test } from '@jest/globals'
import { BackupExecution } from '../../models/deploy/backup-executions.ts'
import { beginDump } from '../../models/deploy/backup-orders.ts'
import { BackupPart } from '../../models/deploy/backup-parts.ts'
import { Backup } from '../../models/deploy/backups.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { EventDelivery } from '../../models/deploy/events.ts'
import { replicas } from '../support/api-clients.ts'
import { spoil, storedBytes } from '../support/blobs.ts'
import type { DeployServerBody } from '../support/client.ts'
import { databasesOf, type ExecutionBody } from '../support/clients/databases.ts'
import { eventsOf } from '../support/clients/events.ts'
import { insideOf, memoryOf, rows, type Written } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages, writtenTypes } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { testDrawn } from '../support/drawn.ts'
import { atEndOfFile } from '../support/end-of-file.ts'
import { eventually } from '../support/eventually.ts'
import { sampled } from '../support/sampled.ts'
import { sharedServer } from '../support/shared-server.ts'
import type { TestTenant } from '../support/tenants.ts'

// Backups of databases on one deploy server, on engines that can be had here (test/support/database-images.ts).

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>

beforeAll(async () => {
  ;({ tenant, server } = await sharedServer())
  if (hasEngines) await makeDatabaseImages('redis') // of most tests
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
  const events = eventsOf(tenant.owner, server.id)
  const { id } = await events.make({ url: 'https://events.example' })
  atEndOfFile(() => events.delete(id))
})

const passwordOf = (url: string | null) => /:(\w+)@/.exec(url ?? '')?.[1]

/** A database with rows. */
async function filled(type: Written = 'redis', over: object = {}) {
  const database = await databases.make({ type, memory_mib: memoryOf[type], ...over })
  await inside.write(database.id, type)
  return database
}

async function backUp(id: string): Promise<ExecutionBody> {
  const { id: execution, operation } = await databases.backUp(id)
  await operation.success()
  return databases.execution(execution)
}

/** `text` names the database. */
const told = (kind: string, text: string) =>
  eventually(async () =>
    (await EventDelivery.find({ tenant_id: tenant.id }).lean()).some(
      (one) => one.kind === kind && one.message.includes(text),
    ),
  )

const remove = async (id: string) => (await databases.delete(id)).operation.success()

describeEngines('a backup', () => {
  test.each(sampled(writtenTypes, 1))(
    'of %s is restored and compared, and restores the database after its rows and its volume are gone',
    async (type) => {
      await makeDatabaseImages(type)
      const { id, name, connection_string } = await filled(type)
      const written = await inside.digest(id, type)
      const execution = await backUp(id)
      expect(execution).toMatchObject({
        status: 'succeeded',
        type,
        backup_id: null,
        verified: { by: 'restore', rows },
      })
      expect(execution.size_bytes).toBeGreaterThan(0)
      expect(await inside.scratches(id)).toEqual([])

      await inside.clear(id, type)
      await (await databases.restore(id, execution.id)).operation.success()
      expect(await inside.count(id, type)).toBe(rows)
      expect(await inside.digest(id, type)).toBe(written)
      const restored = await databases.get(id)
      expect(restored).toMatchObject({ status: 'running', connection_string })
      const [former] = restored.former_volumes
      expect(await inside.volumes(id)).toHaveLength(2)
      expect(await databases.deleteFormerVolume(id, former?.id ?? '')).toMatchObject({ status: 204 })
      await (await databases.restart(id)).operation.success()
      expect(await inside.volumes(id)).toHaveLength(1)
      expect(await inside.count(id, type)).toBe(rows)

      await remove(id)
      expect(await inside.volumes(id)).toEqual([])
      const from = { type, memory_mib: memoryOf[type], execution_id: execution.id }
      const next = await databases.make({ name, ...from })
      expect(next).toMatchObject({ type, former_volumes: [] })
      expect(passwordOf(next.connection_string)).toBe(passwordOf(connection_string))
      expect(await inside.count(next.id, type)).toBe(rows)
      expect(await inside.digest(next.id, type)).toBe(written)
      await remove(next.id)
    },
  )

  test('that is there whole is not written again for a host that did not learn of it', async () => {
    const { id } = await filled()
    const execution = await backUp(id)
    const stored = { _id: execution.id, tenant_id: tenant.id }
    const { attempt } = (await BackupExecution.findOne(stored).lean()) ?? {}
    await BackupExecution.updateOne(stored, { $set: { status: 'creating' } })
    const of = { _id: server.id, tenant_id: tenant.id, nodes: [] }
    expect(await beginDump(of, execution.id, 9)).toBeNull()
    await BackupExecution.updateOne(stored, { $set: { status: 'succeeded' } })
    expect(await BackupExecution.findOne(stored).lean()).toMatchObject({ attempt })
    expect(await BackupPart.countDocuments({ execution_id: execution.id, tenant_id: tenant.id })).toBe(1)
    await remove(id)
  })

  test('is written on though the request that began an earlier attempt arrives late', async () => {
    const { id } = await filled()
    const execution = await backUp(id)
    const stored = { _id: execution.id, tenant_id: tenant.id }
    const { copy } = (await BackupExecution.findOne(stored).lean()) ?? {}
    await BackupExecution.updateOne(stored, { $set: { status: 'creating', copy: null } })
    const { nodes = [] } = (await DeployServer.findOne({ _id: server.id, tenant_id: tenant.id }).lean()) ?? {}
    const of = { _id: server.id, tenant_id: tenant.id, nodes }
    expect(await beginDump(of, execution.id, 3)).toMatchObject({ attempt: 3 })
    await expect(beginDump(of, execution.id, 2)).rejects.toMatchObject({ status: 404 })
    expect(await BackupExecution.findOne(stored).lean()).toMatchObject({ attempt: 3 })
    await BackupExecution.updateOne(stored, { $set: { status: 'succeeded', copy } })
    await (await databases.deleteExecution(execution.id)).operation.success()
    await remove(id)
  })

  test('is stored encrypted in parts, and nothing of it stays when it is deleted', async () => {
    const { id } = await databases.make()
    await inside.runIn(id, `redis-cli set word ${'needle'.repeat(200)}`)
    const { id: execution } = await backUp(id)
    const parts = await BackupPart.find({ execution_id: execution, tenant_id: tenant.id }).lean()
    expect(parts).toHaveLength(1)
    for (const { blob } of parts) expect((await storedBytes(blob)).includes('needle')).toBe(false)
    await (await databases.deleteExecution(execution)).operation.success()
    expect(await BackupPart.countDocuments({ execution_id: execution, tenant_id: tenant.id })).toBe(0)
    expect(await databases.executions(`&database_id=${id}`)).toEqual([])
    await remove(id)
  })

  test('that is damaged in storage is found by the next look, which is told; it is not restored', async () => {
    const { id, name } = await filled()
    const { id: execution } = await backUp(id)
    const part = await BackupPart.findOne({ execution_id: execution, tenant_id: tenant.id }).lean()
    if (part) await spoil(part.blob)
    await BackupExecution.updateOne(
      { _id: execution, tenant_id: tenant.id },
      { $set: { look_at: new Date(0) } },
    )
    const found = await eventually(async () => {
      const now = await databases.execution(execution)
      return now.status === 'damaged' && now
    })
    expect(found.reason).toMatch(/^The backup is damaged: part 1 of 1/)
    await told('backup.damaged', `of ${name} is damaged`)
    const refused = tenant.owner.ask('POST', `/api/v1/deploy-servers/${server.id}/databases/${id}/restore`, {
      execution_id: execution,
    })
    expect(await refused).toMatchObject({ status: 409, body: { code: 'state_conflict' } })
    await (await databases.deleteExecution(execution)).operation.success()
    await remove(id)
  })

  test('that does not have the rows of which its dump told is damaged, which is told; it is not restored', async () => {
    const { id, name } = await filled()
    const { id: execution } = await backUp(id)
    const stored = { _id: execution, tenant_id: tenant.id }
    const more = { 'copy.counts.0.least': rows + 1, 'copy.counts.0.most': rows + 1 }
    expect(await BackupExecution.updateOne(stored, { $set: more })).toMatchObject({ modifiedCount: 1 })
    const { operation } = await databases.restore(id, execution)
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'backup_damaged' } })
    expect(await inside.count(id, 'redis')).toBe(rows)
    await eventually(async () => (await databases.execution(execution)).status === 'damaged')
    expect(await databases.execution(execution)).toMatchObject({
      reason: expect.stringContaining(`has ${rows} rows after the restore, but had ${rows + 1}`),
    })
    await told('backup.damaged', `of ${name} is damaged`)
    expect(await inside.scratches(id)).toEqual([])
    expect(await inside.volumes(id)).toHaveLength(1)
    await remove(id)
  })

  test('whose damage a restore finds first is read back and told; a database that was to begin with it stays without data until it can', async () => {
    const { id, name } = await filled()
    const { id: execution } = await backUp(id)
    const part = await BackupPart.findOne({ execution_id: execution, tenant_id: tenant.id }).lean()
    if (!part) throw new Error('it has no part')
    await spoil(part.blob)
    // Before the next look: what is known of it is that it succeeded.
    const { id: copy, operation } = await databases.create({ name: `${name}-copy`, execution_id: execution })
    const restored = await databases.restore(id, execution)
    expect(await restored.operation.end()).toMatchObject({
      state: 'failed',
      error: { code: 'backup_damaged' },
    })
    expect(await databases.get(id)).toMatchObject({ status: 'running', former_volumes: [] })
    expect(await inside.count(id, 'redis')).toBe(rows)
    expect(await inside.containers(id)).toHaveLength(1)
    expect(await inside.volumes(id)).toHaveLength(1)

    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'backup_damaged' } })
    await eventually(async () => (await databases.execution(execution)).status === 'damaged')
    for (const one of [id, copy]) await eventually(async () => (await inside.scratches(one)).length === 0)
    await told('backup.damaged', `of ${name} is damaged`)

    expect(await (await databases.start(copy)).operation.end()).toMatchObject({
      state: 'failed',
      error: { code: 'backup_damaged' },
    })
    expect(await databases.get(copy)).toMatchObject({ status: 'error' })
    expect([await inside.containers(copy), await inside.volumes(copy)]).toEqual([[], []])
    await spoil(part.blob) // the same byte is changed back
    await (await databases.start(copy)).operation.success()
    expect(await inside.count(copy, 'redis')).toBe(rows)
    // From now on it has data of its own.
    await inside.clear(copy, 'redis')
    await (await databases.stop(copy)).operation.success()
    await (await databases.start(copy)).operation.success()
    expect(await inside.count(copy, 'redis')).toBe(0)
    for (const one of [copy, id]) await remove(one)
  })

  test('that cannot be read back for another reason than damage stays, and that is told', async () => {
    const { id, name } = await filled()
    const { id: execution } = await backUp(id)
    const stored = { _id: execution, tenant_id: tenant.id }
    // No scratch container can be made with so little.
    await BackupExecution.updateOne(stored, { $set: { memory_mib: 4 } })
    const { operation } = await databases.verify(execution)
    expect(await operation.end()).toMatchObject({ state: 'failed' })
    expect(await databases.execution(execution)).toMatchObject({
      status: 'succeeded',
      reason: expect.any(String),
    })
    await told('backup.not_verified', `of ${name} could not be read back`)
    await remove(id)
  })

  test.each(sampled(writtenTypes, 1))(
    'of %s is made at the times of its schedule, which keeps the newest, and restores the database; a missed one is told',
    async (type) => {
      await makeDatabaseImages(type)
      const { id, name } = await filled(type)
      const written = await inside.digest(id, type)
      const { status, body } = await databases.schedule(id, { frequency: '0 3 * * *', keep_count: 1 })
      expect([status, body['timezone'], body['keep_count'], body['enabled']]).toEqual([201, 'UTC', 1, true])
      const backup = String(body['id'])
      const due = () =>
        Backup.updateOne({ _id: backup, tenant_id: tenant.id }, { $set: { next_at: new Date() } })
      const succeeded = async () => {
        const all = await databases.executionsOf(id, backup)
        expect(all.filter(({ status: its }) => its === 'failed')).toEqual([]) // with its reason
        return all.filter((one) => one.status === 'succeeded')
      }
      await due()
      const [first] = await eventually(async () => {
        const all = await succeeded()
        return all.length === 1 && all
      })
      await told('backup.succeeded', name)
      await due()
      const [newest] = await eventually(async () => {
        const all = await succeeded()
        return all.length === 1 && all[0]?.id !== first?.id && all
      })
      expect(newest).toMatchObject({ backup_id: backup, verified: { by: 'restore', rows } })
      await inside.clear(id, type)
      await (await databases.restore(id, newest?.id ?? '')).operation.success()
      expect(await inside.count(id, type)).toBe(rows)
      expect(await inside.digest(id, type)).toBe(written)

      await (await databases.stop(id)).operation.success()
      await due()
      await eventually(async () =>
        (await databases.executionsOf(id, backup)).some((one) => one.status === 'skipped'),
      )
      await told('backup.missed', `${name} was not backed up: The database was stopped`)
      expect(await databases.deleteSchedule(id, backup)).toMatchObject({ status: 204 })
      expect((await databases.executions(`&database_id=${id}`)).length).toBeGreaterThanOrEqual(2)
      await remove(id)
    },
  )

  testDrawn('leaves nothing if it is cancelled; a database that is stopped is not backed up', async () => {
    const { id } = await filled()
    const { id: execution, operation } = await databases.backUp(id)
    await tenant.owner.ask('POST', `/api/v1/operations/${operation.id}/cancel`)
    expect(['cancelled', 'succeeded']).toContain((await operation.end()).state)
    expect(await inside.scratches(id)).toEqual([])
    const { status } = await databases.execution(execution)
    expect(await BackupPart.countDocuments({ execution_id: execution, tenant_id: tenant.id })).toBe(
      status === 'succeeded' ? 1 : 0,
    )
    await (await databases.stop(id)).operation.success()
    const refused = await tenant.owner.ask(
      'POST',
      `/api/v1/deploy-servers/${server.id}/databases/${id}/backup-executions`,
    )
    expect(refused).toMatchObject({ status: 409, body: { code: 'state_conflict' } })
    await remove(id)
  })

  testDrawn('is made once if it is asked for several times at once', async () => {
    const { id } = await filled()
    const path = `/api/v1/deploy-servers/${server.id}/databases/${id}/backup-executions`
    const asked = [...replicas(), ...replicas()].map((replica) =>
      tenant.owner.ask('POST', `${replica}${path}`),
    )
    const answers = (await Promise.all(asked)).map(({ status, body }) => [status, body['code'] ?? null])
    const refused = answers.filter(([status]) => status !== 202)
    expect(refused).toEqual(answers.slice(1).map(() => [409, 'backup_in_progress']))
    const made = () => databases.executions(`&database_id=${id}`)
    await eventually(async () => (await made())[0]?.status === 'succeeded')
    expect(await made()).toHaveLength(1)
    await remove(id)
  })
})

describeEngines('a major upgrade', () => {
  const upgrades: [Written, string, string][] = [
    ['redis', '7.4.5', '8.2.1'],
    ['postgresql', '16.10', '17.6'],
  ]

  test.each(sampled(upgrades, 1))(
    'of %s keeps the rows, the address and the password, and the former volume; the newer version takes the older one’s backup, also in a new database',
    async (type, version, next) => {
      await makeDatabaseImages(type)
      const { id, connection_string, major_upgrades } = await filled(type, { version })
      const written = await inside.digest(id, type)
      expect(await inside.isOfTag(id, type, version)).toBe(true)
      expect(major_upgrades).toContain(next)
      await (await databases.upgrade(id, next)).operation.success()
      const upgraded = await databases.get(id)
      expect(upgraded).toMatchObject({ status: 'running', version: next, connection_string })
      expect(upgraded.former_volumes).toMatchObject([{ version }])
      const isMoved = async (one: string) => {
        expect(await inside.isOfTag(one, type, next)).toBe(true)
        expect(await inside.digest(one, type)).toBe(written)
      }
      await isMoved(id)
      const [execution] = await databases.executions(`&database_id=${id}`)
      expect(execution).toMatchObject({ status: 'succeeded', version })

      await inside.clear(id, type)
      await (await databases.restore(id, execution?.id ?? '')).operation.success()
      await isMoved(id)
      const from = { type, memory_mib: memoryOf[type], execution_id: execution?.id }
      const copy = await databases.make({ version: next, ...from })
      await isMoved(copy.id)
      await remove(copy.id)
      await remove(id)
      expect(await inside.volumes(id)).toEqual([])
    },
  )

  test.each(sampled(upgrades, 1))(
    'of %s that fails leaves the former version with its rows, its volume and nothing else',
    async (type, version, next) => {
      await makeDatabaseImages(type)
      const { id, connection_string } = await filled(type, { version })
      // Nothing can be mounted below a file, so the newer version does not start.
      const { body } = await databases.addStorage(id, '/etc/passwd/x')
      const { operation } = await databases.upgrade(id, next)
      expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'service_failed' } })
      const after = { status: 'running', version, connection_string, former_volumes: [] }
      expect(await databases.get(id)).toMatchObject(after)
      expect(await inside.isOfTag(id, type, version)).toBe(true)
      expect(await inside.count(id, type)).toBe(rows)
      expect(await inside.containers(id)).toHaveLength(1)
      expect(await inside.scratches(id)).toEqual([])
      await databases.removeStorage(id, String(body['id']))
      await (await databases.restart(id)).operation.success()
      expect(await inside.volumes(id)).toHaveLength(1)
      expect(await inside.count(id, type)).toBe(rows)
      await remove(id)
    },
  )
})
