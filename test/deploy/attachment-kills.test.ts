import { beforeAll, describe, expect, test } from '@jest/globals'
import { makeUser, pathsOn, recordsOf, redisUsers } from '../support/attached.ts'
import type { Accepted } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { insideOf } from '../support/database-insides.ts'
import { eventually } from '../support/eventually.ts'
import { platform } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// If a process is killed (-9) while a database is attached or detached, the operation ends as requested, and no user, path or
// variable is left that should not be. The tests look into the engine and at the host's namespaces, not only at the records.

const describeEngines = hasEngines ? describe : describe.skip
const roles = ['worker', 'host', 'temporal', 'mongodb'] as const
const pointsOf = (...steps: string[]) => steps.flatMap((step) => roles.map((role) => ({ step, role })))

let tenant: TestTenant
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>
let database: string
let subnet: string

beforeAll(async () => {
  if (!hasEngines) return
  tenant = await makeTenant()
  const server = await tenant.owner.deployServers.make()
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
  await makeDatabaseImages('redis')
  database = (await databases.make()).id
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
})

/** The operation has come to a step that begins so. */
const at = (step: string, { operation }: Accepted) =>
  eventually(async () => {
    const { state, step: present } = await operation.now()
    return present?.startsWith(step) || !['pending', 'running'].includes(state)
  })

type User = Awaited<ReturnType<typeof makeUser>>

/** It has a user, a path and a variable, once each. */
async function expectAttached(user: User): Promise<void> {
  const [its] = await user.list()
  expect(its).toMatchObject({ database_id: database, status: 'attached' })
  expect(await redisUsers(inside, database)).toEqual([its?.user])
  const { ids, ...records } = await recordsOf(tenant, user.id)
  expect(records).toEqual({ paths: ids, nics: 2 })
  expect(await pathsOn(user.host_id, ids)).toEqual(ids)
  const { DATABASE_URL: url } = await user.vars()
  await eventually(async () => (await user.say('PING', url)) === '+PONG')
}

/** Nothing is left of it, also of the attachments with these ids. */
async function expectDetached(user: User, ids: string[]): Promise<void> {
  expect([await user.list(), await user.vars()]).toEqual([[], {}])
  expect(await recordsOf(tenant, user.id)).toEqual({ ids: [], paths: [], nics: 0 })
  // A host that was killed asks what is wanted when it is back.
  await eventually(async () => (await redisUsers(inside, database)).length === 0)
  await eventually(async () => (await pathsOn(user.host_id, ids)).length === 0)
}

describeEngines('a database', () => {
  test.each(sampled(pointsOf('making its user', 'making its path'), 2))(
    'is attached if $role is killed at the step "$step", and detached if it is killed again',
    async ({ step, role }) => {
      const user = await makeUser(tenant, 'containers', subnet)
      const attached = await user.attach(database)
      await at(step, attached)
      await platform.restartKilled(role)
      expect(await attached.operation.end()).toMatchObject({ state: 'succeeded' })
      await expectAttached(user)

      const { ids } = await recordsOf(tenant, user.id)
      const detached = await user.detach(database)
      await at('removing', detached)
      await platform.restartKilled(role)
      expect(await detached.operation.end()).toMatchObject({ state: 'succeeded' })
      await expectDetached(user, ids)
      await user.delete()
    },
  )

  test.each(sampled(roles, 1))(
    'leaves nothing of an attachment that was cancelled while %s was killed',
    async (role) => {
      const user = await makeUser(tenant, 'containers', subnet)
      const attached = await user.attach(database)
      const { ids } = await recordsOf(tenant, user.id)
      await at('making', attached)
      const killed = platform.restartKilled(role)
      await eventually(async () => attached.operation.cancel().then(() => true))
      await killed
      const { state } = await attached.operation.end()
      // It may have been made before the cancellation came.
      if (state === 'succeeded') await (await user.detach(database)).operation.success()
      await expectDetached(user, ids)
      await user.delete()
    },
  )

  test.each(sampled(roles, 1))(
    'has no user of an instance that was deleted while %s was killed',
    async (role) => {
      const user = await makeUser(tenant, 'containers', subnet)
      await (await user.attach(database)).operation.success()
      const { ids } = await recordsOf(tenant, user.id)
      const { operation } = await tenant.containers.delete(user.id)
      await platform.restartKilled(role)
      expect(await operation.end()).toMatchObject({ state: 'succeeded' })
      expect(await recordsOf(tenant, user.id)).toEqual({ ids: [], paths: [], nics: 0 })
      await eventually(async () => (await redisUsers(inside, database)).length === 0)
      await eventually(async () => (await pathsOn(user.host_id, ids)).length === 0)
    },
  )
})
