import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { UnwantedBlob } from '../../models/blobs.ts'
import { LogPiece } from '../../models/compute/log-archive.ts'
import { BackupPart } from '../../models/deploy/backup-parts.ts'
import { SwarmCopy } from '../../models/deploy/swarm-copies.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { storedBlobs } from '../support/blobs.ts'
import type { Json } from '../support/clients/ask.ts'
import type { Accepted, DeployServerBody } from '../support/client.ts'
import { backupTargetsOf } from '../support/clients/backup-targets.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { insideOf, rows } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { eventually } from '../support/eventually.ts'
import { inTime, killedAt } from '../support/killed-at.ts'
import { momentsOf } from '../support/moments.ts'
import { platform } from '../support/platform.ts'
import { hasS3Server, openS3Server, type S3Server } from '../support/s3-server.ts'
import { sampled } from '../support/sampled.ts'
import { tenantS3 } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { killMachine } from '../support/victims.ts'

// If a process is killed (-9) in the middle of a backup, a restore, an upgrade or a deletion, the operation ends as requested,
// what is said to have succeeded can be restored, and no scratch engine, part or volume is left.

/** What is killed: the platform's processes, and the machine on which the database runs. */
const roles = ['worker', 'host', 'temporal', 'mongodb', 'machine'] as const
const pointsOf = (...steps: string[]) => steps.flatMap((step) => roles.map((role) => ({ step, role })))

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>
let moments: ReturnType<typeof momentsOf>
let s3: S3Server | undefined

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
  moments = momentsOf(tenant, databases, inside)
  if (hasEngines) await makeDatabaseImages('redis')
})

// One that failed would take the room of the others.
afterEach(async () => {
  for (const { id } of await databases.list()) await (await databases.delete(id)).operation.success()
})
afterAll(() => s3?.close())

/** Kills when the operation has come to a step that begins so, and waits until it has succeeded. Returns whether it ran when killed. */
async function killed(step: string, role: (typeof roles)[number], { operation }: Accepted): Promise<boolean> {
  const ran = await killedAt(step, () => kill(role), operation)
  // The machine may still be starting.
  await eventually(() => inside.scratches())
  return ran
}

async function kill(role: (typeof roles)[number]): Promise<void> {
  // The platform starts the machine again by itself.
  if (role === 'machine') await killMachine(server.workers[0]?.machine_id ?? '')
  else await platform.restartKilled(role)
}

/** Waits for a database whose machine was killed after its operation had ended. */
const hasRows = (id: string) => eventually(async () => (await inside.count(id, 'redis')) === rows)

async function filled(over: Json = {}): Promise<string> {
  const { id } = await databases.make(over)
  await inside.write(id, 'redis')
  return id
}

/** A bucket of the tenant. */
async function target(): Promise<{ id: string; bucket: string }> {
  s3 ??= await openS3Server(tenantS3.port)
  const bucket = newId()
  await s3.makeBucket(bucket)
  const { body } = await backupTargetsOf(tenant.owner).create({ endpoint: s3.endpoint, bucket, ...s3.access })
  return { id: String(body['id']), bucket }
}

async function backUp(id: string): Promise<string> {
  const { id: execution, operation } = await databases.backUp(id)
  await operation.success()
  return execution
}

const partsOf = (execution_id: string) => BackupPart.find({ execution_id, tenant_id: tenant.id }).lean()

/** The keys of what is stored in a bucket, or with the platform. */
const storedIn = (bucket: string | null): Promise<string[]> =>
  bucket && s3 ? s3.keys(bucket) : storedBlobs()

/**
 * What has been stored since `before` is the parts, beside archived logs, copies of Swarms, and what the platform removes by
 * itself: a write that was cut off, after an hour.
 */
async function holdsThePartsAlone(execution: string, bucket: string | null, before: string[]): Promise<void> {
  const parts = (await partsOf(execution)).map(({ blob }) => blob.key)
  await eventually(async () => {
    const leaving = (await UnwantedBlob.find().lean()).map(({ _id }) => _id)
    const logs = await LogPiece.distinct('_id').setOptions(everyTenant)
    const swarms = (await SwarmCopy.find().setOptions(everyTenant).lean()).flatMap(({ pieces }) => pieces)
    const others = new Set([...leaving, ...logs, ...swarms.map(({ key }) => key)])
    const stored = (await storedIn(bucket)).filter((key) => !before.includes(key))
    const kept = stored.filter((key) => !others.has(key))
    return String(kept.toSorted()) === String(parts.toSorted())
  })
}

/** Nothing is left of a database but its backups. */
async function remove(id: string): Promise<void> {
  await (await databases.delete(id)).operation.success()
  expect([await inside.containers(id), await inside.volumes(id), await inside.scratches()]).toEqual([
    [],
    [],
    [],
  ])
}

const places = hasS3Server ? ['the platform', 'a bucket'] : ['the platform']
const backedUp = pointsOf('copying', 'waiting', 'restoring').flatMap((point) =>
  places.map((place) => ({ ...point, place })),
)

describeEngines('a backup', () => {
  test.each(sampled(backedUp, 1))(
    'is made in $place, and can be restored, if $role is killed at the step "$step"',
    ({ step, role, place }) =>
      inTime(async () => {
        const id = await filled()
        const { id: target_id, bucket } = place === 'a bucket' ? await target() : { id: null, bucket: null }
        const before = await storedIn(bucket)
        const created = await databases.backUp(id, { target_id })
        const ran = await killed(step, role, created)
        expect(await databases.execution(created.id)).toMatchObject({
          status: 'succeeded',
          verified: { by: 'restore', rows },
        })
        await eventually(async () => (await inside.containers(id)).length === 1)
        const parts = await partsOf(created.id)
        expect(parts.map(({ index }) => index)).toEqual([0])
        await holdsThePartsAlone(created.id, bucket, before)
        expect(await inside.scratches()).toEqual([])
        await inside.clear(id, 'redis')
        await (await databases.restore(id, created.id)).operation.success()
        expect(await inside.count(id, 'redis')).toBe(rows)
        await remove(id)
        return ran
      }),
  )

  test.each(sampled(roles, 1))('is deleted with all that is stored of it if %s is killed meanwhile', (role) =>
    inTime(async () => {
      const id = await filled()
      const before = await storedIn(null)
      const execution = await backUp(id)
      const ran = await killed('removing', role, await databases.deleteExecution(execution))
      expect(await partsOf(execution)).toEqual([])
      await holdsThePartsAlone(execution, null, before)
      await remove(id)
      return ran
    }),
  )
})

describeEngines('a database', () => {
  test.each(sampled(pointsOf('finding', 'restoring', 'ending', 'starting', 'waiting'), 1))(
    'is restored if $role is killed at the step "$step"',
    ({ step, role }) =>
      inTime(async () => {
        const id = await filled()
        const execution = await backUp(id)
        await inside.clear(id, 'redis')
        const ran = await killed(step, role, await databases.restore(id, execution))
        await hasRows(id)
        expect(await inside.containers(id)).toHaveLength(1)
        expect(await inside.volumes(id)).toHaveLength(2) // the former one
        await remove(id)
        return ran
      }),
  )

  test.each(sampled(pointsOf('finding', 'ending', 'starting', 'waiting'), 1))(
    'goes back to its former volume if $role is killed at the step "$step"',
    ({ step, role }) =>
      inTime(async () => {
        const id = await filled()
        const other = await databases.make()
        const empty = await backUp(other.id)
        await (await databases.restore(id, empty)).operation.success()
        await remove(other.id) // another try needs its room
        expect(await inside.count(id, 'redis')).toBe(0)
        const [former] = (await databases.get(id)).former_volumes
        const ran = await killed(step, role, await databases.goBack(id, former?.id ?? ''))
        await hasRows(id)
        expect(await inside.containers(id)).toHaveLength(1)
        expect(await inside.volumes(id)).toHaveLength(2)
        expect((await databases.get(id)).former_volumes).toHaveLength(1)
        await remove(id)
        return ran
      }),
  )

  test.each(sampled(pointsOf('ending the conn', 'backing', 'restoring', 'ending the data', 'starting'), 1))(
    'is upgraded with its rows if $role is killed at the step "$step"',
    ({ step, role }) =>
      inTime(async () => {
        const id = await filled({ version: '7.4.5' })
        const ran = await killed(step, role, await databases.upgrade(id, '8.2.1'))
        expect(await databases.get(id)).toMatchObject({ status: 'running', version: '8.2.1' })
        await hasRows(id)
        expect(await inside.containers(id)).toHaveLength(1)
        await remove(id)
        return ran
      }),
  )
})

const digest = (id: string) => inside.digest(id, 'postgresql')

describeEngines('a database with an archive', () => {
  beforeAll(() => makeDatabaseImages('postgresql'))

  const recovered = pointsOf('recovering', 'starting').map((point) => ({
    ...point,
    place: hasS3Server && point.step === 'recovering' ? 'a bucket' : 'the platform',
  }))

  test.each(sampled(recovered, 1))(
    'is recovered to a moment, from $place, if $role is killed at the step "$step"',
    ({ step, role, place }) =>
      inTime(async () => {
        const target_id = place === 'a bucket' ? (await target()).id : null
        const id = await moments.make({ point_in_time: { enabled: true, target_id } })
        await inside.write(id, 'postgresql')
        const [moment, written] = [await moments.now(id), await digest(id)]
        await inside.clear(id, 'postgresql')
        await moments.reaches(id, await moments.now(id))
        const ran = await killed(step, role, await databases.recover(id, moment))
        await eventually(async () => (await digest(id)) === written)
        expect(await inside.containers(id)).toHaveLength(1)
        expect(await inside.volumes(id)).toHaveLength(2) // the former one
        await remove(id)
        return ran
      }),
  )

  test.each(sampled(roles, 1))(
    'is recovered to a moment up to which its log was written while %s was killed',
    async (role) => {
      const id = await moments.make()
      await inside.write(id, 'postgresql')
      const killing = kill(role)
      if (role !== 'machine') await moments.writeMore(id)
      await killing
      await eventually(async () => (await databases.get(id)).status === 'running')
      // A command in a container that does not run says so in words.
      const written = await eventually(
        async () => /^[0-9a-f]{32}$/.exec(await digest(id).catch(() => ''))?.[0],
      )
      const moment = await moments.now(id)
      await moments.reaches(id, moment)
      // It went on where it was.
      expect(await moments.archives(id)).toHaveLength(1)
      await inside.clear(id, 'postgresql')
      await (await databases.recover(id, moment)).operation.success()
      expect(await digest(id)).toBe(written)
      await remove(id)
    },
  )
})
