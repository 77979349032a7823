import { afterEach, describe, expect, test } from '@jest/globals'
import { type Accepted, shell } from '../support/client.ts'
import { testDrawn } from '../support/drawn.ts'
import { engine, type Moments } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { randomOf } from '../support/random.ts'
import { platform, type RoleName, startAll } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Accepted operations take effect exactly once, even if a process is killed (-9).

afterEach(startAll)

const roles: RoleName[] = ['worker', 'host', 'gateway', 'temporal', 'mongodb', 'api']
// A killed host worker is noticed after 10 s of silence; a busy machine is slow.

/** The record matches the engine, and the engine has nothing that no record knows. */
async function expectOne(tenant: TestTenant, id: string, status: 'running' | 'stopped'): Promise<void> {
  const [container, ...more] = await engine.withLabel('keelson.tenant', tenant.id)
  expect(more).toEqual([])
  expect(container?.Labels['keelson.resource']).toBe(id)
  expect(container?.State).toBe(status === 'running' ? 'running' : 'exited')
  expect(await tenant.containers.get(id)).toMatchObject({
    status,
    desired_state: status,
    status_reason: null,
    operation_id: null,
  })
  expect(await tenant.holds()).toEqual({ cpu_milli: 100, memory_mib: 16, reservations: 1 })
}

/** Waits until the operation runs. */
const taken = ({ operation }: Accepted) => eventually(async () => (await operation.now()).state === 'running')

describe('create', () => {
  const moments = {
    'its workflow has begun': async (_seen: Moments, accepted: Accepted) => taken(accepted),
    'its container is made': (seen: Moments) => seen.next('create'),
    'its container is started': (seen: Moments) => seen.next('start'),
  }
  const points = Object.entries(moments).flatMap(([when, moment]) =>
    roles.map((role) => ({ role, when, moment })),
  )

  test.each(sampled(points, 3))('completes once if $role is killed when $when', async ({ role, moment }) => {
    const tenant = await makeTenant()
    const seen = await engine.watch(tenant.id)
    const accepted = await tenant.containers.create()
    await moment(seen, accepted)
    await platform.kill(role)
    await platform.start(role)
    expect(await accepted.operation.end()).toMatchObject({ state: 'succeeded', error: null })
    await expectOne(tenant, accepted.id, 'running')
    expect(seen.count('create')).toBe(1)
  })

  test('completes if the gateway is killed while a host carries out a step, and the step is not repeated', async () => {
    const tenant = await makeTenant()
    const seen = await engine.watch(tenant.id)
    const accepted = await tenant.containers.create()
    await seen.next('create')
    await platform.kill('gateway')
    await seen.next('start') // the host goes on, and cannot say so
    await platform.start('gateway')
    expect(await accepted.operation.end()).toMatchObject({ state: 'succeeded', error: null })
    await expectOne(tenant, accepted.id, 'running')
    expect(seen.count('create')).toBe(1)
  })

  test('completes if the API is killed between the transaction and the start of the workflow', async () => {
    const tenant = await makeTenant()
    await platform.kill('temporal') // the start of the workflow, which follows the commit, now blocks
    const { id, operation } = await tenant.containers.create()
    await platform.kill('api')
    await platform.start('temporal')
    await platform.start('api')
    expect(await operation.end()).toMatchObject({ state: 'succeeded' })
    await expectOne(tenant, id, 'running')
  })

  test('is accepted while Temporal is down, and carried out once it is back', async () => {
    const tenant = await makeTenant()
    await platform.kill('temporal')
    const { id, operation } = await tenant.containers.create()
    expect(await operation.now()).toMatchObject({ state: 'pending', started_at: null })
    expect(await engine.withLabel('keelson.resource', id)).toEqual([])
    await platform.start('temporal')
    expect(await operation.end()).toMatchObject({ state: 'succeeded' })
    await expectOne(tenant, id, 'running')
  })

  test('completes after all roles are killed at once', async () => {
    const tenant = await makeTenant()
    const seen = await engine.watch(tenant.id)
    const { id, operation } = await tenant.containers.create()
    await seen.next('create')
    await Promise.all(roles.map((role) => platform.kill(role)))
    await Promise.all(
      roles.filter((role) => role === 'temporal' || role === 'mongodb').map((role) => platform.start(role)),
    )
    await Promise.all(roles.map((role) => platform.start(role)))
    expect(await operation.end()).toMatchObject({ state: 'succeeded' })
    await expectOne(tenant, id, 'running')
  })
})

test('while MongoDB is down the API answers 503 with a time to retry', async () => {
  const tenant = await makeTenant()
  await platform.kill('mongodb')
  const answer = await tenant.owner.ask('GET', '/api/v1/containers')
  expect(answer).toMatchObject({ status: 503, body: { code: 'unavailable' } })
  expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
})

describe('every other verb', () => {
  /** The engine event in the middle of the verb, and the container's final status. */
  const verbs = {
    stop: { moment: 'kill', ends: 'stopped' },
    start: { moment: 'start', ends: 'running' },
    update: { moment: 'update', ends: 'running' },
    delete: { moment: 'destroy', ends: null },
  } as const
  type Verb = keyof typeof verbs
  const points = (Object.keys(verbs) as Verb[]).flatMap((verb) => roles.map((role) => ({ verb, role })))

  test.each(sampled(points, 3))('$verb completes although $role is killed', async ({ verb, role }) => {
    const { moment, ends } = verbs[verb]
    const tenant = await makeTenant()
    const { id } = await tenant.containers.make()
    if (verb === 'start') await (await tenant.containers.stop(id)).operation.success()
    const seen = await engine.watch(tenant.id)
    const { operation } =
      verb === 'update'
        ? await tenant.containers.update(id, { memory_mib: 32 })
        : await tenant.containers[verb](id)
    await seen.next(moment)
    await platform.kill(role)
    await platform.start(role)
    expect(await operation.end()).toMatchObject({ state: 'succeeded' })

    if (verb === 'update') {
      expect((await engine.only(id)).HostConfig.Memory).toBe(32 * 2 ** 20)
      await (await tenant.containers.update(id, { memory_mib: 16 })).operation.success()
    }
    if (ends) return expectOne(tenant, id, ends)
    expect(await engine.withLabel('keelson.tenant', tenant.id)).toEqual([])
    expect(await tenant.owner.ask('GET', `/api/v1/containers/${id}`)).toMatchObject({ status: 404 })
    expect((await tenant.holds()).reservations).toBe(0)
  })
})

test('an operation that is cancelled when its host was killed ends as cancelled', async () => {
  const tenant = await makeTenant()
  const { id } = await tenant.containers.make(shell('trap "" TERM; while :; do sleep 1; done'))
  const seen = await engine.watch(tenant.id)
  const { operation } = await tenant.containers.stop(id, { grace_sec: 300 })
  await seen.next('kill')
  await platform.kill('host')
  await operation.cancel()
  await platform.start('host')
  expect(await operation.end()).toMatchObject({ state: 'cancelled', error: { code: 'cancelled' } })
  const now = { status: 'running', desired_state: 'running', operation_id: null }
  expect(await tenant.containers.get(id)).toMatchObject(now)
  expect((await engine.only(id)).State.Running).toBe(true)
})

testDrawn(
  'a container that wrote too much stays stopped if its host is killed while it stops it',
  async () => {
    const tenant = await makeTenant()
    const seen = await engine.watch(tenant.id)
    // Stopped by force only, 10 s after the host has begun.
    const script = `trap '' TERM; dd if=/dev/zero of=/filled bs=1M count=1100; while :; do sleep 1; done`
    const { id } = await tenant.containers.make(shell(script, { disk_gib: 1, cpu_cores: 1, memory_mib: 64 }))
    await seen.next('kill')
    await platform.kill('host')
    await platform.start('host')
    const full = await eventually(async () => {
      const now = await tenant.containers.get(id)
      return now.status === 'stopped' && now
    })
    expect(full).toMatchObject({
      desired_state: 'stopped',
      operation_id: null,
      status_reason: expect.stringMatching(/more than its disk_gib/),
    })
    expect((await engine.only(id)).State.Running).toBe(false)
  },
)

describe('with kills at random moments,', () => {
  const seeds = Array.from({ length: 20 }, (_, seed) => seed)
  test.each(sampled(seeds, 1))('seed %i: ten creates survive three kills', async (seed) => {
    const random = randomOf(seed)
    const tenant = await makeTenant()
    const accepted = await Promise.all(Array.from({ length: 10 }, () => tenant.containers.create()))
    for (let i = 0; i < 3; i++) {
      const role = roles[Math.floor(random() * roles.length)] ?? 'worker'
      await new Promise((resolve) => setTimeout(resolve, random() * 800))
      await platform.kill(role)
      await platform.start(role)
    }
    const ends = await Promise.all(accepted.map(({ operation }) => operation.end()))
    expect(ends.map(({ state }) => state)).toEqual(ends.map(() => 'succeeded'))
    const containers = await engine.withLabel('keelson.tenant', tenant.id)
    expect(new Set(containers.map(({ Labels }) => Labels['keelson.resource']))).toEqual(
      new Set(accepted.map(({ id }) => id)),
    )
    expect(containers).toHaveLength(10)
  })
})
