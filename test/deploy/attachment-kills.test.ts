import { beforeAll, expect, test } from '@jest/globals'
import { makeUser, pathsOn, postgresqlUsers, recordsOf, redisUsers } from '../support/attached.ts'
import type { Accepted, DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { insideOf, memoryOf, rows } from '../support/database-insides.ts'
import { eventually } from '../support/eventually.ts'
import { endAfterKill, inTime, killedAt } from '../support/killed-at.ts'
import { platform } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { killMachine } from '../support/victims.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// If a process is killed (-9) while a database is attached or detached, or is restored or deleted with an attachment, the
// operation ends as requested, and no user, path or variable is left that should not be. The tests look into the engine and at
// the host's namespaces, not only at the records.

/** What is killed: the platform's processes, and the machine on which the database runs. */
const roles = ['worker', 'host', 'temporal', 'mongodb', 'machine'] as const
type Role = (typeof roles)[number]
const pointsOf = (...steps: string[]) => steps.flatMap((step) => roles.map((role) => ({ step, role })))

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>
let database: string
let subnet: string

beforeAll(async () => {
  if (!hasEngines) return
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
  await makeDatabaseImages('redis')
  database = (await databases.make()).id
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
})

async function kill(role: Role): Promise<void> {
  // The platform starts the machine again by itself.
  if (role === 'machine') await killMachine(server.workers[0]?.machine_id ?? '')
  else await platform.restartKilled(role)
}

/** Kills at a step of an operation that must succeed. Returns whether it ran when killed. */
const killed = (step: string, role: Role, { operation }: Accepted): Promise<boolean> =>
  killedAt(step, () => kill(role), operation)

type User = Awaited<ReturnType<typeof makeUser>>

const areUsers = (of: () => Promise<string[]>, ...wanted: (string | undefined)[]) =>
  // A machine that was killed is back later than the operation, and so is what its host makes in it.
  eventually(async () => String(await of()) === String(wanted))
const usersAre = (...wanted: (string | undefined)[]) =>
  areUsers(() => redisUsers(inside, database), ...wanted)

/** It has a user, a path and a variable, once each. */
async function expectAttached(user: User): Promise<void> {
  const [its] = await user.list()
  expect(its).toMatchObject({ database_id: database, status: 'attached' })
  await usersAre(its?.user)
  const { ids, ...records } = await recordsOf(tenant, user.id)
  expect(records).toEqual({ paths: ids, nics: 2 })
  expect(await pathsOn(user.host_id, ids)).toEqual(ids)
  const { DATABASE_URL: url } = await user.vars()
  await eventually(async () => (await user.say('PING', url)) === '+PONG')
}

/** Nothing is left of attachments with these ids but, for a while, what a host that was killed removes when it is back. */
async function expectNoRecords(user: User, ids: string[]): Promise<void> {
  expect(await recordsOf(tenant, user.id)).toEqual({ ids: [], paths: [], nics: 0 })
  await eventually(async () => (await pathsOn(user.host_id, ids)).length === 0)
}

async function expectDetached(user: User, ids: string[]): Promise<void> {
  expect([await user.list(), await user.vars()]).toEqual([[], {}])
  await expectNoRecords(user, ids)
}

describeEngines('a database', () => {
  const attached = [
    ...pointsOf('making its user', 'making its path').map((point) => ({
      ...point,
      plural: 'containers' as const,
    })),
    { step: 'making its path', role: 'host' as const, plural: 'microvms' as const },
  ]

  test.each(sampled(attached, 2))(
    'is attached to one of the $plural if $role is killed at the step "$step", and detached if it is killed again',
    ({ step, role, plural }) =>
      inTime(async () => {
        const user = await makeUser(tenant, plural, subnet)
        const wasAttached = await killed(step, role, await user.attach(database))
        await expectAttached(user)
        const { ids } = await recordsOf(tenant, user.id)
        const wasDetached = await killed('removing', role, await user.detach(database))
        await expectDetached(user, ids)
        await usersAre()
        await user.delete()
        return wasAttached && wasDetached
      }),
  )

  test.each(sampled(roles, 1))(
    'leaves nothing of an attachment that was cancelled while %s was killed',
    (role) =>
      inTime(async () => {
        const user = await makeUser(tenant, 'containers', subnet)
        const { operation } = await user.attach(database)
        const { ids } = await recordsOf(tenant, user.id)
        const killAndCancel = async () => {
          const killing = kill(role)
          await eventually(async () => operation.cancel().then(() => true))
          await killing
        }
        const { ran, end } = await endAfterKill('making', killAndCancel, operation)
        // It may have been made before the cancellation came.
        if (end.state === 'succeeded') await (await user.detach(database)).operation.success()
        await expectDetached(user, ids)
        await usersAre()
        await user.delete()
        return ran && end.state === 'cancelled'
      }),
  )

  test.each(sampled(roles, 1))('has no user of an instance that was deleted while %s was killed', (role) =>
    inTime(async () => {
      const user = await makeUser(tenant, 'containers', subnet)
      await (await user.attach(database)).operation.success()
      const { ids } = await recordsOf(tenant, user.id)
      const ran = await killed('removing', role, await tenant.containers.delete(user.id))
      await expectNoRecords(user, ids)
      await usersAre()
      return ran
    }),
  )

  // The volume of PostgreSQL has the users of the time of the backup.
  test.each(sampled(pointsOf('restoring', 'starting'), 1))(
    'that is restored while $role is killed at the step "$step" has the users that are attached now, and none of the backup’s time',
    ({ step, role }) =>
      inTime(async () => {
        await makeDatabaseImages('postgresql')
        const { id } = await databases.make({ type: 'postgresql', memory_mib: memoryOf.postgresql })
        await inside.write(id, 'postgresql')
        const psql = { image: 'keelson/test-postgresql:17.6', entrypoint: ['sleep'], command: ['3600'] }
        const former = await makeUser(tenant, 'containers', subnet, psql)
        const present = await makeUser(tenant, 'containers', subnet, psql)
        await (await former.attach(id)).operation.success()
        const [its] = await former.list()
        await areUsers(() => postgresqlUsers(inside, id), its?.user)
        const { id: execution, operation } = await databases.backUp(id)
        await operation.success()
        await (await former.detach(id)).operation.success()
        await (await present.attach(id)).operation.success()
        await inside.clear(id, 'postgresql')

        const ran = await killed(step, role, await databases.restore(id, execution))
        const [now] = await present.list()
        await areUsers(() => postgresqlUsers(inside, id), now?.user)
        const { DATABASE_URL: url } = await present.vars()
        await eventually(async () => {
          const said = await present.run(`psql '${url}' -tAqc 'SELECT count(*) FROM rows' 2>&1 || true`)
          return said === String(rows)
        })
        for (const user of [former, present]) await user.delete()
        await (await databases.delete(id)).operation.success()
        return ran
      }),
  )

  test.each(sampled(pointsOf('ending', 'detaching', 'destroying'), 1))(
    'that is deleted while $role is killed at the step "$step" leaves its instance without a path and a variable',
    ({ step, role }) =>
      inTime(async () => {
        const { id } = await databases.make()
        const user = await makeUser(tenant, 'containers', subnet)
        await (await user.attach(id)).operation.success()
        const { ids } = await recordsOf(tenant, user.id)
        const ran = await killed(step, role, await databases.delete(id))
        await expectDetached(user, ids)
        const left = async () => [...(await inside.containers(id)), ...(await inside.volumes(id))]
        await eventually(async () => (await left()).length === 0)
        await usersAre() // of the other database
        await user.delete()
        return ran
      }),
  )
})
