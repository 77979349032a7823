import { describe, expect, test } from '@jest/globals'
import { loadAppImages, tellsItsStart } from '../support/app-images.ts'
import type { Accepted, DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { innerEngine } from '../support/machines-inside.ts'
import { sampled } from '../support/sampled.ts'
import { holdsNothing, makeTenant, type TestTenant } from '../support/tenants.ts'
import { kill, leftOn, type Victim, victims } from '../support/victims.ts'
import { visit, visitors } from '../support/visits.ts'

// If a process or a machine is killed (-9) while a deploy server is created, changed or deleted, it ends as requested, its
// applications serve on, and it leaves no traces. The tests look at the engine, not only at the records.

const containersOf = ({ id }: TestTenant) => engine.withLabel('keelson.tenant', id)
const machinesOf = async (tenant: TestTenant): Promise<number> =>
  (await containersOf(tenant)).filter(({ Labels }) => Labels['keelson.kind'] === 'container').length

const says = (words: RegExp) => (_: TestTenant, operation: Accepted['operation']) => operation.says(words)

const killDuring = (victim: Victim, tenant: TestTenant, id: string, operation: Accepted['operation']) =>
  kill(victim, tenant.owner, id, operation.hasEnded)

const ready = async (tenant: TestTenant, id: string, workers: number): Promise<DeployServerBody> => {
  const server = await tenant.owner.deployServers.get(id)
  expect(server).toMatchObject({ status: 'ready', operation_id: null, status_reason: null })
  expect(server.workers.map(({ registered }) => registered)).toEqual(Array(workers).fill(true))
  expect(await machinesOf(tenant)).toBe(workers + 1)
  expect((await tenant.storage()).reservations).toBe(workers + 1)
  return server
}

async function gone(tenant: TestTenant): Promise<void> {
  expect(await tenant.holds()).toEqual(holdsNothing)
  expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
  expect(await tenant.owner.get('/api/v1/vpcs?limit=0')).toMatchObject({ total: 0 })
  await eventually(async () => (await containersOf(tenant)).length === 0)
}

const remove = async (tenant: TestTenant, id: string): Promise<void> => {
  await (await tenant.owner.deployServers.delete(id)).operation.success()
  await gone(tenant)
}

type Moment = (tenant: TestTenant, operation: Accepted['operation']) => Promise<unknown>

const points = (moments: Record<string, Moment>) =>
  Object.entries(moments).flatMap(([when, moment]) => victims.map((victim) => ({ victim, when, moment })))

/** An application that serves from all workers, with visitors that may not see anything. */
async function serving(tenant: TestTenant, server: DeployServerBody) {
  await loadAppImages(tenant.owner, server)
  const apps = applicationsOf(tenant.owner, server.id)
  const app = await apps.make({ replicas: server.workers.length })
  const load = visitors(app.url, 2)
  return {
    /** `victim`: a worker may take its only replica with it. */
    served: async (victim: Victim): Promise<void> => {
      await load.stop()
      if (victim !== 'w1') expect(load.failures).toEqual([])
      await eventually(async () => (await visit(app.url)).text === 'v1')
      await (await apps.delete(app.id)).operation.success()
      const present = await tenant.owner.deployServers.get(server.id)
      await eventually(async () => (await leftOn(tenant.owner, present)).length === 0)
    },
  }
}

describe('a creation', () => {
  const moments = {
    'makes its machines': says(/machines$/),
    'has its first machine': (tenant: TestTenant) => eventually(async () => (await machinesOf(tenant)) > 0),
    'joins them into a Swarm': says(/Swarm/),
  }
  test.each(sampled(points(moments), 2))(
    'completes if $victim is killed when it $when',
    async ({ victim, moment }) => {
      const tenant = await makeTenant()
      const { id, operation } = await tenant.owner.deployServers.create()
      await moment(tenant, operation)
      await killDuring(victim, tenant, id, operation)
      expect(await operation.end()).toMatchObject({ state: 'succeeded', error: null })
      await ready(tenant, id, 1)
      await remove(tenant, id)
    },
  )

  test.each(sampled(Object.entries(moments), 1))(
    'that is cancelled when it %s leaves nothing',
    async (_, moment) => {
      const tenant = await makeTenant()
      const { id, operation } = await tenant.owner.deployServers.create()
      await moment(tenant, operation)
      await operation.cancel()
      expect((await operation.end()).state).toBe('cancelled')
      await gone(tenant)
      await remove(tenant, id)
    },
  )
})

describe('a change of the number of workers', () => {
  const growing = { 'makes a machine': says(/machines$/), 'has it join': says(/Swarm/) }
  test.each(sampled(points(growing), 1))(
    'completes if $victim is killed when it $when',
    async ({ victim, moment }) => {
      const tenant = await makeTenant()
      const server = await tenant.owner.deployServers.make()
      const { id } = server
      const { served } = await serving(tenant, server)
      const { operation } = await tenant.owner.deployServers.update(id, { worker_count: 2 })
      await moment(tenant, operation)
      await killDuring(victim, tenant, id, operation)
      expect(await operation.end()).toMatchObject({ state: 'succeeded', error: null })
      await ready(tenant, id, 2)
      await served(victim)
      await remove(tenant, id)
    },
  )

  const shrinking = { 'moves applications away': says(/moving/), 'removes a machine': says(/removing/) }
  test.each(sampled(points(shrinking), 1))(
    'completes if $victim is killed when it $when',
    async ({ victim, moment }) => {
      const tenant = await makeTenant()
      const server = await tenant.owner.deployServers.make({ worker_count: 2 })
      const { id } = server
      const { served } = await serving(tenant, server)
      const { operation } = await tenant.owner.deployServers.update(id, { worker_count: 1 })
      await moment(tenant, operation)
      await killDuring(victim, tenant, id, operation)
      expect(await operation.end()).toMatchObject({ state: 'succeeded', error: null })
      await ready(tenant, id, 1)
      await served(victim)
      await remove(tenant, id)
    },
  )
})

/** The workers on which applications run. */
const runsOn = async (tenant: TestTenant, server: DeployServerBody): Promise<string[]> => {
  const names = server.workers.map(async ({ name, machine_id }) => {
    const inner = await innerEngine(tenant.owner, machine_id ?? '')
    return (await inner.listContainers()).some(({ Labels }) => 'keelson.deployment' in Labels) ? name : []
  })
  return (await Promise.all(names)).flat()
}

describe('a removal of a worker', () => {
  test.each(sampled(['moving', 'removing'], 1))(
    'that is cancelled at the step "%s" leaves workers that all take applications',
    async (step) => {
      const tenant = await makeTenant()
      const { deployServers } = tenant.owner
      const server = await deployServers.make({ worker_count: 2 })
      const { id } = server
      await loadAppImages(tenant.owner, server)
      const apps = applicationsOf(tenant.owner, id)
      const app = await apps.make({ replicas: 2 })
      const { operation } = await deployServers.update(id, { worker_count: 1 })
      await operation.says(new RegExp(step))
      await tenant.owner.ask('POST', `/api/v1/operations/${operation.id}/cancel`)
      const { state } = await operation.end() // a worker that has left the Swarm is removed whole
      const workers = state === 'cancelled' ? 2 : 1
      expect((await deployServers.get(id)).worker_count).toBe(workers)
      await (await deployServers.update(id, {})).operation.success()
      const after = await ready(tenant, id, workers)
      await (await apps.deploy(app.id)).operation.success()
      expect(await runsOn(tenant, after)).toEqual(after.workers.map(({ name }) => name))
      await remove(tenant, id)
    },
  )
})

/** An application, and what checks that it has not started again. */
async function untouched(tenant: TestTenant, server: DeployServerBody): Promise<() => Promise<void>> {
  await loadAppImages(tenant.owner, server)
  const { url } = await applicationsOf(tenant.owner, server.id).make({ command: tellsItsStart })
  const { text: began } = await visit(url)
  return async () => expect((await visit(url)).text).toBe(began)
}

describe('the replacement of a machine', () => {
  const replacing = {
    'removes a machine': says(/removing/),
    'makes a machine': says(/making/),
    'has machines join': says(/Swarm/),
    'has all but its images': says(/looking|releasing/),
  }
  const cases = ['w1', 'cp'].flatMap((machine) => points(replacing).map((point) => ({ machine, ...point })))
  test.each(sampled(cases, 1))(
    'completes for $machine if $victim is killed when it $when',
    async ({ machine, victim, moment }) => {
      const tenant = await makeTenant()
      const server = await tenant.owner.deployServers.make()
      const { id } = server
      const runsStill = machine === 'cp' && victim !== 'w1' ? await untouched(tenant, server) : null
      const path = `/api/v1/deploy-servers/${id}/machines/${machine}/replace`
      const { operation } = await tenant.owner.begin('POST', path)
      await moment(tenant, operation)
      await killDuring(victim, tenant, id, operation)
      expect(await operation.end()).toMatchObject({ state: 'succeeded', error: null })
      await runsStill?.()
      await ready(tenant, id, 1)
      await remove(tenant, id)
    },
  )
})

test.each(sampled(victims, 1))('a deletion completes if %s is killed', async (victim) => {
  const tenant = await makeTenant()
  const { id } = await tenant.owner.deployServers.make()
  const { operation } = await tenant.owner.deployServers.delete(id)
  await operation.says(/deleting/)
  await killDuring(victim, tenant, id, operation)
  expect(await operation.end()).toMatchObject({ state: 'succeeded' })
  await gone(tenant)
})
