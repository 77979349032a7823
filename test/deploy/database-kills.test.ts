import { afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import type { Accepted, DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { insideOf, rows } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { eventually } from '../support/eventually.ts'
import { platform } from '../support/platform.ts'
import { askOutside } from '../support/public-clients.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// If a process is killed (-9) in the middle of an operation on a database, the operation ends as requested, never do two
// engines run on one volume, and the rows are there. The tests look at the worker's engine, not only at the records.

const describeEngines = hasEngines ? describe : describe.skip
const within = 240_000
const roles = ['worker', 'host', 'temporal', 'mongodb'] as const

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
  if (hasEngines) await makeDatabaseImages('redis')
})

// One that failed would take the room of the others.
afterEach(async () => {
  for (const { id } of await databases.list()) await (await databases.delete(id)).operation.success()
})

/** The operation has come to a step that begins so. */
const at =
  (step: string) =>
  ({ operation }: Accepted) =>
    eventually(async () => {
      const { state, step: present } = await operation.now()
      return present?.startsWith(step) || !['pending', 'running'].includes(state)
    })

const pointsOf = (...steps: string[]) => steps.flatMap((step) => roles.map((role) => ({ step, role })))

/** Counts the engines that run with a database's volumes, until it is told to stop. */
function watchEngines(id: string) {
  const counts: number[] = []
  const enough = new AbortController()
  const look = async (): Promise<void> => {
    while (!enough.signal.aborted) counts.push((await inside.containers(id).catch(() => [])).length)
  }
  const looking = look()
  return {
    async most(): Promise<number> {
      enough.abort()
      await looking
      return Math.max(0, ...counts)
    },
  }
}

async function remove(id: string): Promise<void> {
  await (await databases.delete(id)).operation.success()
  expect([await inside.containers(id), await inside.volumes(id)]).toEqual([[], []])
}

describeEngines('a database', () => {
  test.each(sampled(pointsOf('finding', 'getting', 'starting', 'waiting'), 1))(
    'is created if $role is killed at the step "$step"',
    async ({ step, role }) => {
      const created = await databases.create()
      await at(step)(created)
      await platform.restartKilled(role)
      expect(await created.operation.end(within)).toMatchObject({ state: 'succeeded', error: null })
      expect(await databases.get(created.id)).toMatchObject({ status: 'running' })
      await inside.write(created.id, 'redis')
      expect(await inside.containers(created.id)).toHaveLength(1)
      await remove(created.id)
    },
  )

  test.each(sampled(pointsOf('getting', 'ending', 'starting', 'waiting'), 1))(
    'restarts with its rows and never with two engines if $role is killed at the step "$step"',
    async ({ step, role }) => {
      const { id } = await databases.make()
      await inside.write(id, 'redis')
      const engines = watchEngines(id)
      const restarted = await databases.restart(id)
      await at(step)(restarted)
      await platform.restartKilled(role)
      expect(await restarted.operation.end(within)).toMatchObject({ state: 'succeeded', error: null })
      expect(await engines.most()).toBe(1)
      expect(await inside.count(id, 'redis')).toBe(rows)
      await remove(id)
    },
  )

  test.each(sampled(roles, 1))(
    'stops, and starts again with its rows, if %s is killed meanwhile',
    async (role) => {
      const { id } = await databases.make()
      await inside.write(id, 'redis')
      const stopped = await databases.stop(id)
      await at('ending')(stopped)
      await platform.restartKilled(role)
      expect(await stopped.operation.end(within)).toMatchObject({ state: 'succeeded', error: null })
      expect(await inside.containers(id)).toEqual([])
      await (await databases.start(id)).operation.success()
      expect(await inside.count(id, 'redis')).toBe(rows)
      await remove(id)
    },
  )

  test.each(sampled(roles, 1))(
    'is published, and withdrawn, with nothing left, if %s is killed meanwhile',
    async (role) => {
      const { id } = await databases.make()
      const published = await databases.publish(id)
      await at('opening')(published)
      await platform.restartKilled(role)
      expect(await published.operation.end(within)).toMatchObject({ state: 'succeeded', error: null })
      expect(await eventually(async () => askOutside(await databases.get(id)))).toMatch(/1 by TLS$/)
      const withdrawn = await databases.unpublish(id)
      await at('closing')(withdrawn)
      await platform.restartKilled(role)
      expect(await withdrawn.operation.end(within)).toMatchObject({ state: 'succeeded', error: null })
      expect((await tenant.owner.loadBalancers.get(server.lb_id)).listeners).toHaveLength(1)
      expect(await tenant.owner.get('/api/v1/certificates')).toMatchObject({ items: [] })
      await remove(id)
    },
  )

  test.each(
    sampled(
      roles.flatMap((role) => [true, false].map((keeps) => ({ role, keeps }))),
      1,
    ),
  )('is deleted if $role is killed meanwhile; its volume is kept: $keeps', async ({ role, keeps }) => {
    const { id } = await databases.make()
    const deleted = await databases.delete(id, keeps ? '' : '?delete_volumes=true')
    await at('ending')(deleted)
    await platform.restartKilled(role)
    expect(await deleted.operation.end(within)).toMatchObject({ state: 'succeeded', error: null })
    expect(await inside.containers(id)).toEqual([])
    expect(await inside.volumes(id)).toHaveLength(keeps ? 1 : 0)
    expect(await databases.keptVolumes()).toHaveLength(keeps ? 1 : 0)
    if (keeps) await (await databases.destroyKept(id)).operation.success()
  })
})
