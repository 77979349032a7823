import { afterEach, beforeAll, expect, test } from '@jest/globals'
import { Backup } from '../../models/deploy/backups.ts'
import type { Accepted, DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { insideOf, rows } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { atEndOfFile } from '../support/end-of-file.ts'
import { eventually } from '../support/eventually.ts'
import { inTime, killedAt } from '../support/killed-at.ts'
import { platform } from '../support/platform.ts'
import { askOutside } from '../support/public-clients.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { killMachine } from '../support/victims.ts'

// If a process is killed (-9) in the middle of an operation on a database, the operation ends as requested, never do two
// engines run on one volume, and the rows are there. The tests look at the worker's engine, not only at the records.

const roles = ['worker', 'host', 'temporal', 'mongodb'] as const
/** A database that is deleted: also the machine on which it runs. */
const victims = [...roles, 'machine'] as const
type Victim = (typeof victims)[number]

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

async function kill(victim: Victim): Promise<void> {
  // The platform starts the machine again by itself.
  if (victim === 'machine') await killMachine(server.workers[0]?.machine_id ?? '')
  else await platform.restartKilled(victim)
}

/** Kills when the operation has come to a step that begins so, and waits until it has succeeded. Returns whether it ran when killed. */
const killed = (step: string, victim: Victim, { operation }: Accepted): Promise<boolean> =>
  killedAt(step, () => kill(victim), operation)

const pointsOf = (...steps: string[]) => steps.flatMap((step) => roles.map((role) => ({ step, role })))

/** Counts the engines that run with a database's volumes, until it is told to stop. */
function watchEngines(id: string) {
  const counts: number[] = []
  const enough = new AbortController()
  const look = async (): Promise<void> => {
    while (!enough.signal.aborted) counts.push((await inside.containers(id).catch(() => [])).length)
  }
  const looking = look()
  atEndOfFile(() => enough.abort())
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
    ({ step, role }) =>
      inTime(async () => {
        const created = await databases.create()
        const ran = await killed(step, role, created)
        expect(await databases.get(created.id)).toMatchObject({ status: 'running' })
        await inside.write(created.id, 'redis')
        expect(await inside.containers(created.id)).toHaveLength(1)
        await remove(created.id)
        return ran
      }),
  )

  test.each(sampled(pointsOf('getting', 'ending', 'starting', 'waiting'), 1))(
    'restarts with its rows and never with two engines if $role is killed at the step "$step"',
    ({ step, role }) =>
      inTime(async () => {
        const { id } = await databases.make()
        await inside.write(id, 'redis')
        const engines = watchEngines(id)
        const ran = await killed(step, role, await databases.restart(id))
        expect(await engines.most()).toBe(1)
        expect(await inside.count(id, 'redis')).toBe(rows)
        await remove(id)
        return ran
      }),
  )

  test.each(sampled(roles, 1))('stops, and starts again with its rows, if %s is killed meanwhile', (role) =>
    inTime(async () => {
      const { id } = await databases.make()
      await inside.write(id, 'redis')
      const ran = await killed('ending', role, await databases.stop(id))
      expect(await inside.containers(id)).toEqual([])
      await (await databases.start(id)).operation.success()
      expect(await inside.count(id, 'redis')).toBe(rows)
      await remove(id)
      return ran
    }),
  )

  test.each(sampled(roles, 1))(
    'is published, and withdrawn, with nothing left, if %s is killed meanwhile',
    (role) =>
      inTime(async () => {
        const { id } = await databases.make()
        const opened = await killed('opening', role, await databases.publish(id))
        expect(await eventually(async () => askOutside(await databases.get(id)))).toMatch(/1 by TLS$/)
        const closed = await killed('closing', role, await databases.unpublish(id))
        expect((await tenant.owner.loadBalancers.get(server.lb_id)).listeners).toHaveLength(1)
        expect(await tenant.owner.get('/api/v1/certificates')).toMatchObject({ items: [] })
        await remove(id)
        return opened && closed
      }),
  )

  test.each(
    sampled(
      victims.flatMap((victim) => [true, false].map((keeps) => ({ victim, keeps }))),
      1,
    ),
  )(
    'is deleted with its schedule if $victim is killed meanwhile; its volume is kept: $keeps',
    ({ victim, keeps }) =>
      inTime(async () => {
        const { id } = await databases.make()
        expect(await databases.schedule(id, { frequency: '0 3 * * *' })).toMatchObject({ status: 201 })
        const ran = await killed(
          'ending',
          victim,
          await databases.delete(id, keeps ? '' : '?delete_volumes=true'),
        )
        expect(await eventually(() => inside.containers(id))).toEqual([])
        expect(await inside.volumes(id)).toHaveLength(keeps ? 1 : 0)
        expect(await databases.keptVolumes()).toHaveLength(keeps ? 1 : 0)
        expect(await Backup.countDocuments({ database_id: id, tenant_id: tenant.id })).toBe(0)
        if (keeps) await (await databases.destroyKept(id)).operation.success()
        return ran
      }),
  )
})
